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
		{Request{Method: "POST", Path: "/a?b=c", ContentType: "application/json", Body: []byte(`{"a":"<&>"}`)}, `{"v":1,"method":"POST","path":"/a?b=c","type":"application/json","body":"{\"a\":\"<&>\"}"}`},
		{Request{Method: "POST", Path: "/a"}, `{"v":1,"method":"POST","path":"/a"}`},
		{Request{Method: "POST", Path: "/a", ContentType: "x/y", Body: []byte("\x00\xff")}, `{"v":1,"method":"POST","path":"/a","type":"x/y","base64":"AP8="}`},
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
		{Request{Path: "/a"}, "method"}, {Request{Method: "CONNECT", Path: "/a"}, "method"}, {Request{Method: "POST", Path: "a"}, "one slash"},
		{Request{Method: "POST", Path: "//host/a"}, "one slash"}, {Request{Method: "POST", Path: "/a/../b"}, "dots"}, {Request{Method: "POST", Path: "/%2E%2e"}, "dots"},
		{Request{Method: "POST", Path: "/a b"}, "percent-encoded"}, {Request{Method: "POST", Path: "/a\r\nX: y"}, "percent-encoded"}, {Request{Method: "POST", Path: "/a%zz"}, "invalid URL escape"},
		{Request{Method: "POST", Path: "/a#b"}, "percent-encoded"}, {Request{Method: "POST", Path: "/a", Body: []byte("x")}, "content type"},
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
