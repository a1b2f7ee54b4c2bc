package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"zabor/internal/servers"
)

// distribute runs scripts/dist.sh, with more variables.
func distribute(t *testing.T, script string, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), script, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", script, args, err, out)
	}
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// The Debian package of this program, its manual and its completions: what is in
// it and for whom, installed by dpkg, used, removed and purged.
func TestPackage(t *testing.T) {
	t.Parallel()
	servers.Need(t, "dpkg-deb", "dpkg")
	work := t.TempDir()
	manual, out := filepath.Join(work, "manual"), filepath.Join(work, "out")
	env := []string{"SOURCE_DATE_EPOCH=1772452800", "VERSION=1.2.0-rc1", "COMPRESSION=1"}
	distribute(t, "../../scripts/dist.sh", env, "manual", binary(t), manual)
	t.Run("manual", func(t *testing.T) { lintManual(t, manual) })
	distribute(t, "../../scripts/dist.sh", env, "pack", "amd64", binary(t), manual, out)

	listed := output(t, "tar", "-tvzf", filepath.Join(out, "zabor_1.2.0-rc1_linux_amd64.tar.gz"))
	for _, want := range []string{`-rwxr-xr-x 0/0 .* zabor_1.2.0-rc1_linux_amd64/zabor$`, `-rw-r--r-- 0/0 .*/man/zabor-fence\.1$`, `/docs/switching\.md$`, `/completions/_zabor$`, ` 2026-03-0[123] `} {
		if !regexp.MustCompile(`(?m)` + want).MatchString(listed) {
			t.Errorf("no %s in the tarball:\n%s", want, listed)
		}
	}
	deb := filepath.Join(out, "zabor_1.2.0~rc1_amd64.deb")
	listed = output(t, "dpkg-deb", "-c", deb)
	for _, want := range []string{
		`^drwxr-x--- root/root .* \./etc/zabor/$`, `^-rw-r----- root/root .* \./etc/zabor/zabor\.env$`, `^-rwxr-xr-x root/root .* \./usr/bin/zabor$`,
		`^-rw-r--r-- root/root .* \./usr/lib/systemd/system/zabor\.service$`, `\./usr/share/man/man1/zabor-worker\.1\.gz$`, `\./usr/share/man/man5/zabor\.yaml\.5\.gz$`,
		`\./usr/share/bash-completion/completions/zabor$`, `\./usr/share/zsh/vendor-completions/_zabor$`, `\./usr/share/fish/vendor_completions\.d/zabor\.fish$`,
		`\./usr/share/doc/zabor/examples/zabor\.yaml$`, `\./usr/share/doc/zabor/docs/switching\.md$`,
	} {
		if !regexp.MustCompile(`(?m)` + want).MatchString(listed) {
			t.Errorf("no %s in the package:\n%s", want, listed)
		}
	}
	if strings.Contains(listed, "/zabor.yaml\n") && regexp.MustCompile(`etc/zabor/zabor\.yaml$`).MatchString(listed) {
		t.Error("the package brings a configuration, which would overwrite the shop's or ask about it")
	}
	if got := output(t, "dpkg-deb", "-f", deb, "Version", "Architecture"); !strings.Contains(got, "Version: 1.2.0~rc1") || !strings.Contains(got, "Architecture: amd64") {
		t.Errorf("fields:\n%s", got)
	}
	if os.Geteuid() == 0 {
		t.Run("dpkg", func(t *testing.T) { installPackage(t, deb) })
	}
}

// lintManual reads every page as man does.
func lintManual(t *testing.T, folder string) {
	pages, err := filepath.Glob(filepath.Join(folder, "*.[15]"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages, error %v", len(pages), err)
	}
	mandoc := servers.Need(t, "mandoc", "mandoc")
	if out, _ := exec.CommandContext(t.Context(), mandoc, append([]string{"-T", "lint", "-W", "warning"}, pages...)...).CombinedOutput(); len(out) > 0 {
		t.Errorf("mandoc:\n%s", out)
	}
	for page, want := range map[string][]string{
		"zabor.1":        {"zabor-fence(1)", "ZABOR_CONFIG", "/etc/zabor/zabor.yaml", "EXIT STATUS", "--log-format"},
		"zabor-fence.1":  {"zabor fence settle [options] ORDER STEP REFERENCE", "--i-have-checked-the-provider", "FENCE RELEASE", "FENCE SHOW"},
		"zabor-worker.1": {"--drain", "--accept-eviction"},
		"zabor.yaml.5":   {"queues.NAME.laravel.retry_after", "providers.NAME.lookup.absent_after", "Default: 90d"},
	} {
		text := regexp.MustCompile(`.\x08`).ReplaceAllString(output(t, mandoc, "-T", "ascii", "-O", "width=200", filepath.Join(folder, page)), "")
		for _, one := range want {
			if !strings.Contains(text, one) {
				t.Errorf("%s says nothing of %s:\n%s", page, one, text)
			}
		}
		for _, hidden := range []string{"prove-worker", "stop-at"} {
			if strings.Contains(text, hidden) {
				t.Errorf("%s tells of %s, which help hides", page, hidden)
			}
		}
	}
}

// installPackage installs deb below a folder, as dpkg does it for a machine that
// is being made, and takes it away again.
func installPackage(t *testing.T, deb string) {
	root := t.TempDir()
	for _, folder := range []string{"etc", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n", "etc/shadow": "root:*:19000:0:99999:7:::\n", "etc/gshadow": "root:*::\n", "etc/login.defs": "", "var/lib/dpkg/status": "", "var/lib/dpkg/available": "",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) string {
		return output(t, "dpkg", append([]string{"--root=" + root, "--log=" + filepath.Join(root, "log"), "--force-script-chrootless", "--force-depends", "--force-architecture", "--force-unsafe-io"}, args...)...)
	}
	if got := dpkg("-i", deb); !strings.Contains(got, "switching.md") {
		t.Errorf("whoever installs is not told what is next:\n%s", got)
	}
	dpkg("-i", deb) // an upgrade: the user is there

	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil {
		t.Fatal(err)
	}
	ids := regexp.MustCompile(`(?m)^zabor:[^:]*:(\d+):(\d+):.*:/var/lib/zabor:/usr/sbin/nologin$`).FindStringSubmatch(string(passwd))
	if ids == nil || strings.Count(string(passwd), "\nzabor:") != 1 {
		t.Fatalf("the user is\n%s", passwd)
	}
	for path, want := range map[string]string{"etc/zabor": "750 0:" + ids[2], "etc/zabor/zabor.env": "640 0:" + ids[2], "var/lib/zabor": "700 " + ids[1] + ":" + ids[2]} {
		if got := strings.TrimSpace(output(t, "stat", "-c", "%a %u:%g", filepath.Join(root, path))); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	program := filepath.Join(root, "usr/bin/zabor")
	if got := output(t, program, "version"); !strings.HasPrefix(got, "zabor ") {
		t.Errorf("version: %s", got)
	}
	file := filepath.Join(root, "etc/zabor/zabor.yaml")
	if err := os.WriteFile(file, []byte("fence: \"sqlite://"+filepath.Join(root, "var/lib/zabor/fence.db")+"\"\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if got := output(t, program, "config", "check", "-c", file); !strings.Contains(got, "is valid") {
		t.Errorf("config check: %s", got)
	}
	output(t, program, "migrate", "-c", file)

	dpkg("-r", "zabor")
	if _, err := os.Stat(program); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed, and still there: %v", err)
	}
	dpkg("-P", "zabor")
	if _, err := os.Stat(filepath.Join(root, "etc/zabor/zabor.env")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("purged, and still there: %v", err)
	}
	for _, kept := range []string{file, filepath.Join(root, "var/lib/zabor/fence.db")} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("purged with what is not the package's: %v", err)
		}
	}
}

// Two releases of one commit, made in two places by people with other habits, are
// the same bytes, and know their commit. Minutes: ZABOR_SOAK=1 only.
func TestReproducible(t *testing.T) {
	t.Parallel()
	if !soaking() {
		t.Skip("builds the program four times: ZABOR_SOAK=1")
	}
	servers.Need(t, "dpkg-deb", "dpkg")
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var sums [2]string
	for i, env := range [][]string{{"TZ=Asia/Tokyo", "LANG=C.UTF-8"}, {"TZ=America/Caracas", "HOME=" + os.Getenv("HOME")}} {
		tree := filepath.Join(t.TempDir(), strings.Repeat("deep/", 3*i), "zabor")
		output(t, "git", "clone", "-q", source, tree)
		distribute(t, filepath.Join(tree, "scripts/dist.sh"), env)
		text, err := os.ReadFile(filepath.Join(tree, "dist/SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(text)
		if i > 0 {
			continue
		}
		if n := strings.Count(sums[i], "\n"); n != 4 {
			t.Fatalf("%d files, want 4:\n%s", n, sums[i])
		}
		root := t.TempDir()
		debs, _ := filepath.Glob(filepath.Join(tree, "dist/*_amd64.deb"))
		output(t, "dpkg-deb", "-x", debs[0], root)
		commit := strings.TrimSpace(output(t, "git", "-C", tree, "rev-parse", "HEAD"))
		if got := output(t, filepath.Join(root, "usr/bin/zabor"), "version"); !strings.Contains(got, "(commit "+commit+")") {
			t.Errorf("version: %s; want commit %s, and not dirty", got, commit)
		}
	}
	if sums[0] != sums[1] {
		t.Errorf("not reproducible:\n%s\n%s", sums[0], sums[1])
	}
}
