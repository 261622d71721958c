package bed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
)

func checked(t *testing.T, x *trigger) version {
	t.Helper()
	v, err := x.check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Only a file that has stopped growing is a version, and only the newest one.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	x := &trigger{BedTrigger: plan.BedTrigger{Name: "x", Directory: dir, Match: "*.bin"}}
	if v := checked(t, x); v.name != "" {
		t.Errorf("an empty directory: got %+v", v)
	}

	write(t, filepath.Join(dir, "a.txt"), "no image", 0o600)
	file := write(t, filepath.Join(dir, "a.bin"), "half", 0o600)
	if v := checked(t, x); v.name != "" {
		t.Errorf("a file seen once: got %+v", v)
	}

	write(t, file, "half and half", 0o600)
	if v := checked(t, x); v.name != "" {
		t.Errorf("a file that grew: got %+v", v)
	}

	first := checked(t, x)
	if first.name != "a.bin" || first.file != file || first.id == "" {
		t.Errorf("a whole file: got %+v", first)
	}

	if again := checked(t, x); again != first {
		t.Errorf("the same file: got %+v, want %+v", again, first)
	}

	bad := write(t, filepath.Join(dir, "-rf $(x).bin"), "x", 0o600)
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(bad, later, later); err != nil {
		t.Fatal(err)
	}

	checked(t, x)
	if _, err := x.check(t.Context()); err == nil || !strings.Contains(err.Error(), "name of a version") {
		t.Errorf("a name that a shell expands: got %v", err)
	}
}

// A file that another user can change is no version, nor is one in a directory to which others can write.
func TestDirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "a.bin"), "image", 0o600)
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}

	x := &trigger{BedTrigger: plan.BedTrigger{Name: "x", Directory: dir}}
	checked(t, x)
	if _, err := x.check(t.Context()); err == nil || !strings.Contains(err.Error(), "others can change") {
		t.Errorf("a file that others can write: got %v", err)
	}

	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}

	if key, err := wrongTrigger(x.BedTrigger); key != "directory" || err == nil {
		t.Errorf("a sticky directory: got %s, %v", key, err)
	}

	if _, err := x.check(t.Context()); err == nil || !strings.Contains(err.Error(), "others can write") {
		t.Errorf("a sticky directory: got %v", err)
	}

	b, _, _ := service(t)
	if _, err := b.measureOnce(t.Context(), Job{Version: file}, task{}); err == nil ||
		!strings.Contains(err.Error(), "others can change") {
		t.Errorf("boot: got %v", err)
	}
}

func TestURL(t *testing.T) {
	asked := map[int]int{}
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect to another host was followed")
	}))
	defer other.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case r.Header.Get("If-None-Match") == `"1"`:
			asked[http.StatusNotModified]++
			w.WriteHeader(http.StatusNotModified)
		default:
			asked[http.StatusOK]++
			w.Header().Set("ETag", `"1"`)
			fmt.Fprint(w, "image")
		}
	}))
	defer s.Close()
	x := &trigger{images: t.TempDir(), BedTrigger: plan.BedTrigger{Name: "x", URL: s.URL + "/f.bin",
		AllowPrivate: true}}
	v := checked(t, x)
	data, err := os.ReadFile(v.file)
	if err != nil || string(data) != "image" || !strings.HasPrefix(v.name, "x-") ||
		filepath.Ext(v.name) != ".bin" {
		t.Errorf("got %+v with %q, %v", v, data, err)
	}

	if again := checked(t, x); again != v || asked[http.StatusOK] != 1 || asked[http.StatusNotModified] != 1 {
		t.Errorf("unchanged: got %+v, want %+v; requests %v", again, v, asked)
	}

	left, err := os.ReadDir(x.images)
	if err != nil || len(left) != 1 {
		t.Errorf("files: got %v, %v, want the image only", left, err)
	}

	x.AllowPrivate = false
	if _, err := x.check(t.Context()); !errors.Is(err, errPrivate) {
		t.Errorf("a loopback address: got %v", err)
	}

	x.AllowPrivate, x.URL = true, s.URL+"/away"
	if _, err := x.check(t.Context()); err == nil || !strings.Contains(err.Error(), "another host") {
		t.Errorf("a redirect: got %v", err)
	}
}

func TestPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"93.184.216.34:443":            true,
		"[2606:2800:220:1::1]:443":     true,
		"127.0.0.1:80":                 false,
		"10.1.2.3:80":                  false,
		"192.168.1.1:80":               false,
		"169.254.169.254:80":           false,
		"100.64.0.1:80":                false,
		"[::1]:80":                     false,
		"[fe80::1]:80":                 false,
		"[fd00::1]:80":                 false,
		"[::ffff:127.0.0.1]:80":        false,
		"[64:ff9b::7f00:1]:80":         false,
		"[64:ff9b:1::7f00:1]:80":       false,
		"[2002:7f00:1::1]:80":          false,
		"[fec0::1]:80":                 false,
		"198.18.0.1:80":                false,
		"240.0.0.1:80":                 false,
		"0.0.0.0:80":                   false,
		"224.0.0.1:80":                 false,
		"255.255.255.255:80":           false,
		"name-that-was-not-resolved:1": false,
	} {
		if err := public("tcp", address, nil); (err == nil) != want {
			t.Errorf("%s: got %v, want that it is public: %v", address, err, want)
		}
	}
}

func TestGit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		out, err := host.Run(context.Background(), host.Local(), host.Command{Path: "git",
			Args: append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x"}, args...)})
		if errors.Is(err, host.ErrUnsupported) {
			t.Skip("skip: no git here")
		}

		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	git("commit", "-q", "--allow-empty", "-m", "one")
	x := &trigger{BedTrigger: plan.BedTrigger{Name: "x", Git: dir, Ref: "refs/heads/main"}}
	if v := checked(t, x); v.name != git("rev-parse", "main") {
		t.Errorf("got %+v", v)
	}

	x.Ref = "refs/heads/none"
	if _, err := x.check(t.Context()); err == nil {
		t.Error("a missing ref: got no error")
	}
}

func TestCommand(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "v"), "#!/bin/sh\necho 24.10.2\necho more\n", 0o700)
	x := &trigger{BedTrigger: plan.BedTrigger{Name: "x", Command: []string{file}}}
	if v := checked(t, x); v.name != "24.10.2" {
		t.Errorf("got %+v", v)
	}

	for script, want := range map[string]string{"exit 3": "exit", "echo '--help'": "name of a version"} {
		write(t, file, "#!/bin/sh\n"+script+"\n", 0o700)
		if _, err := x.check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", script, err, want)
		}
	}

	write(t, file, "#!/bin/sh\n", 0o700)
	if v := checked(t, x); v.name != "" {
		t.Errorf("no output: got %+v", v)
	}
}
