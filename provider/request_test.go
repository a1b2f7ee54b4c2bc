package provider

import (
	"bytes"
	"strings"
	"testing"
)

func TestFreeze(t *testing.T) {
	for _, tt := range []struct {
		r    Request
		want string
	}{
		{Request{"POST", "/a?b=c", "application/json", []byte(`{"a":"<&>"}`)}, `{"v":1,"method":"POST","path":"/a?b=c","type":"application/json","body":"{\"a\":\"<&>\"}"}`},
		{Request{"POST", "/a", "", nil}, `{"v":1,"method":"POST","path":"/a"}`},
		{Request{"POST", "/a", "x/y", []byte("\x00\xff")}, `{"v":1,"method":"POST","path":"/a","type":"x/y","base64":"AP8="}`},
	} {
		got, err := Freeze(tt.r)
		if err != nil || string(got) != tt.want {
			t.Errorf("%+v: %s, %v", tt.r, got, err)
		}
		again, err := Thaw(got)
		if err != nil || again.Method != tt.r.Method || again.Path != tt.r.Path || again.ContentType != tt.r.ContentType || !bytes.Equal(again.Body, tt.r.Body) {
			t.Errorf("%s: %+v, %v", got, again, err)
		}
	}
	for _, tt := range []struct {
		r    Request
		want string
	}{
		{Request{"", "/a", "", nil}, "method"}, {Request{"CONNECT", "/a", "", nil}, "method"}, {Request{"POST", "a", "", nil}, "one slash"},
		{Request{"POST", "//host/a", "", nil}, "one slash"}, {Request{"POST", "/a/../b", "", nil}, "dots"}, {Request{"POST", "/%2E%2e", "", nil}, "dots"},
		{Request{"POST", "/a b", "", nil}, "percent-encoded"}, {Request{"POST", "/a\r\nX: y", "", nil}, "percent-encoded"}, {Request{"POST", "/a%zz", "", nil}, "invalid URL escape"},
		{Request{"POST", "/a#b", "", nil}, "percent-encoded"}, {Request{"POST", "/a", "", []byte("x")}, "content type"},
	} {
		if got, err := Freeze(tt.r); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %s, %v, want %s", tt.r, got, err, tt.want)
		}
	}
	for _, text := range []string{``, `{}`, `{"v":2,"method":"POST","path":"/a"}`, `{"v":1,"method":"POST","path":"a"}`, `{"v":1,"method":"POST","path":"/a","new":1}`, `{"v":1,"method":"POST","path":"/a","type":"x","base64":"!"}`} {
		if r, err := Thaw([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, r)
		}
	}
}
