package sqlstore

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestKeptUnreadable(t *testing.T) {
	onEach(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		before := time.Now().Add(-time.Minute)
		for i := range 7 {
			if err := s.Quarantine().Save(ctx, Unreadable{Queue: "payments", Bytes: fmt.Appendf(nil, "\x00\xff%d", i), Reason: "no JSON"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Quarantine().Save(ctx, Unreadable{Queue: "refunds", Bytes: []byte("r")}); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		var last KeptUnreadable
		for {
			page, err := s.Quarantine().List(ctx, "payments", last, 3)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range page {
				if !last.At.IsZero() && u.At.After(last.At) {
					t.Errorf("%v comes after %v; want the newest first", u.At, last.At)
				}
				last = u
				if seen[string(u.Bytes)] = true; u.Queue != "payments" || u.Reason != "no JSON" || len(u.ID) != 64 || u.At.Before(before) {
					t.Errorf("entry %+v", u)
				}
				for _, id := range []string{u.ID, u.ID[:8], u.ID[:9]} {
					if got, err := s.Quarantine().Load(ctx, "payments", id); err != nil || got.ID != u.ID || string(got.Bytes) != string(u.Bytes) {
						t.Errorf("LoadUnreadable(%s) = %+v, %v; want %s", id, got, err, u.ID)
					}
				}
			}
			if len(page) < 3 {
				break
			}
		}
		if len(seen) != 7 {
			t.Errorf("%d entries were listed, want 7", len(seen))
		}
		for _, tt := range []struct{ queue, id string }{{"refunds", last.ID}, {"payments", last.ID[:7]}, {"payments", "xyzxyzxyz"}, {"payments", last.ID + "00"}, {"payments", ""}} {
			if _, err := s.Quarantine().Load(ctx, tt.queue, tt.id); !errors.Is(err, ErrNoUnreadable) {
				t.Errorf("LoadUnreadable(%s, %s): error %v, want ErrNoUnreadable", tt.queue, tt.id, err)
			}
			if err := s.Quarantine().Forget(ctx, tt.queue, tt.id); !errors.Is(err, ErrNoUnreadable) {
				t.Errorf("ForgetUnreadable(%s, %s) = %v, want ErrNoUnreadable", tt.queue, tt.id, err)
			}
		}
		if err := s.Quarantine().Forget(ctx, "payments", last.ID); err != nil {
			t.Fatal(err)
		}
		if err := s.Quarantine().Forget(ctx, "payments", last.ID); !errors.Is(err, ErrNoUnreadable) {
			t.Errorf("ForgetUnreadable twice = %v", err)
		}
		if n := count(t, s, "SELECT COUNT(*) FROM zabor_unreadable"); n != 7 {
			t.Errorf("%d entries are left, want 7", n)
		}
	})
}
