package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rotating is a configuration whose provider's secret is in a file.
type rotating struct {
	t       *testing.T
	file    string
	fresh   func() (secret string, changed bool)
	reports []string
	now     time.Time
}

func newRotating(t *testing.T, dir, yaml string) *rotating {
	t.Helper()
	r := &rotating{t: t, file: filepath.Join(dir, "STRIPE_SECRET"), now: time.Now()}
	if _, err := os.Stat(r.file); err != nil {
		r.write("sk_live_one\n")
	}
	c, err := Parse("zabor.yaml", []byte(yaml), Env{Lookup: func(name string) (string, bool) {
		return dir, name == "CREDENTIALS_DIRECTORY"
	}})
	if err != nil {
		t.Fatal(err)
	}
	rotation := c.Rotation(func(err error) { r.reports = append(r.reports, err.Error()) })
	rotation.now = func() time.Time { return r.now }
	credentials := rotation.Credentials("stripe")
	r.fresh = func() (string, bool) {
		profile, changed := credentials()
		return profile.Headers["Authorization"], changed
	}
	return r
}

func (r *rotating) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// wants demands what the next request is told, when d has passed.
func (r *rotating) wants(what string, d time.Duration, secret string) {
	r.t.Helper()
	r.now = time.Now().Add(d)
	want := ""
	if secret != "" {
		want = "Bearer " + secret
	}
	if got, changed := r.fresh(); got != want || changed != (secret != "") {
		r.t.Errorf("%s: %q, changed %v, want %q; reports %q", what, got, changed, want, r.reports)
	}
}

const oneStripe = "fence: sqlite:///fence.db\nproviders:\n  stripe: {profile: stripe, secret: '${STRIPE_SECRET}'}\n"

const later = 2 * SettleTime

func TestRotation(t *testing.T) {
	t.Parallel()
	r := newRotating(t, t.TempDir(), oneStripe)
	r.wants("nothing has changed", later, "")

	r.write("sk_live_two\n")
	r.wants("who writes may not be through", 0, "")
	r.wants("written in place", later, "sk_live_two")
	r.wants("it is given once", later, "")

	other := r.file + ".new"
	if err := os.WriteFile(other, []byte("sk_live_thr"), 0o600); err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(r.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(other, was.ModTime(), was.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, r.file); err != nil {
		t.Fatal(err)
	}
	r.wants("another file of the same time", later, "sk_live_thr")
	if len(r.reports) != 0 {
		t.Errorf("reports %q", r.reports)
	}
}

// As Kubernetes does it: the file is a link into a folder that is a link, and that
// one is put in the place of another.
func TestRotationOfLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	publish := func(version, secret string) {
		t.Helper()
		folder := filepath.Join(dir, version)
		link := filepath.Join(dir, "..new")
		for _, err := range []error{
			os.Mkdir(folder, 0o700),
			os.WriteFile(filepath.Join(folder, "STRIPE_SECRET"), []byte(secret), 0o600),
			os.Symlink(version, link),
			os.Rename(link, filepath.Join(dir, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	publish("..1", "sk_live_one")
	if err := os.Symlink("..data/STRIPE_SECRET", filepath.Join(dir, "STRIPE_SECRET")); err != nil {
		t.Fatal(err)
	}
	r := newRotating(t, dir, oneStripe)
	publish("..2", "sk_live_two")
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	r.wants("the folder was swapped", later, "sk_live_two")
}

// What cannot be used leaves what was there, and is told of once.
func TestRotationKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *rotating){
		"emptied":          func(r *rotating) { r.write("") },
		"two lines":        func(r *rotating) { r.write("sk_live_two\nsk_live_three\n") },
		"of the test mode": func(r *rotating) { r.write("sk_test_two") },
		"away":             func(r *rotating) { os.Remove(r.file) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRotating(t, t.TempDir(), oneStripe)
			change(r)
			r.wants(name, later, "")
			r.wants("again", later, "")
			if len(r.reports) != 1 || strings.Contains(r.reports[0], "sk_") {
				t.Errorf("reports %q, want one, without the secret", r.reports)
			}
			r.write("sk_live_good")
			r.wants("mended", later, "sk_live_good")
		})
	}
}

// An account is not rotated: rows are of the account that they were captured with.
func TestRotationOfAnAccount(t *testing.T) {
	t.Parallel()
	yaml := "fence: sqlite:///fence.db\nproviders:\n  stripe: {profile: yookassa, account: '${STRIPE_SECRET}', secret: live_x}\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "STRIPE_SECRET"), []byte("100500"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRotating(t, dir, yaml)
	r.write("100501")
	r.wants("another account", later, "")
	if len(r.reports) != 1 || !strings.Contains(r.reports[0], "account") {
		t.Errorf("reports %q", r.reports)
	}
}
