package bed

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
)

func write(t *testing.T, file, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

const wholeBed = `name: lab-1
lab: lab.yaml
store: postgres://u@h/d
plans: {night: night.yaml, quick: quick}
firmware: "24.10.1"
good: "24.10.0"
canary: "23.05.5"
schedules:
  nightly: {cron: "0 2 * * *", plans: [night], grace: 3h}
triggers:
  images: {directory: images, match: "*.bin", plans: [quick]}
  page: {url: "https://example.net/x.bin", plans: [quick], every: 1h}
alarm: {webhook: "https://example.net/hook"}
metrics: 127.0.0.1:9101
`

// anyway finds nothing wrong with what a bed file names.
func anyway(plan.Bed) (key string, err error) { return "", nil }

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "images"), 0o700); err != nil {
		t.Fatal(err)
	}

	file := write(t, filepath.Join(dir, "bed.yaml"), wholeBed, 0o600)
	b, err := Read(file, anyway)
	if err != nil {
		t.Fatal(err)
	}

	if b.Lab != filepath.Join(dir, "lab.yaml") || b.Plans[0].Plan != filepath.Join(dir, "night.yaml") ||
		b.Plans[1].Plan != "quick" || b.Schedules[0].Grace != 3*time.Hour ||
		b.Triggers[0].Directory != filepath.Join(dir, "images") || b.Triggers[1].Every != time.Hour {
		t.Errorf("got %+v", b)
	}

	for _, tt := range []struct{ old, new, want string }{
		{"name: lab-1", "name: ../lab", ":1:"},
		{"name: lab-1", "name: " + strings.Repeat("a", 41), "name of a testbed"},
		{`"0 2 * * *"`, `"99 2 * * *"`, ":9:"},
		{`"0 2 * * *"`, `"@every 1m"`, "no fixed times"},
		{`"0 2 * * *"`, `"0 2 30 2 *"`, "no such day"},
		{"plans: [night]", "plans: [nigth]", `no plan "nigth"`},
		{"nightly:", "night.ly:", "not a name"},
		{"metrics: 127.0.0.1:9101", "metrics: 0.0.0.0:9101", "loopback"},
		{"https://example.net/x.bin", "file:///etc/passwd", ":12:"},
		{`url: "https://example.net/x.bin"`, `git: "ext::sh -c x", ref: main`, "no repository"},
		{`url: "https://example.net/x.bin"`, `git: "ssh://-oProxyCommand=x/y", ref: main`, "no repository"},
		{`url: "https://example.net/x.bin"`, `git: "https://secret@h/x", ref: main`, "list of processes"},
		{`url: "https://example.net/x.bin"`, `git: "ssh://git:secret@h/x", ref: main`, "list of processes"},
		{`url: "https://example.net/x.bin"`, `git: "https://h/x", ref: --upload-pack=x`, "cannot be watched"},
		{`url: "https://example.net/x.bin"`, `git: "https://h/x"`, "ref with git"},
		{`url: "https://example.net/x.bin",`, "", "0 sources"},
		{`match: "*.bin"`, `match: "["`, "no pattern"},
		{"directory: images", "directory: missing", ":11:"},
		{"https://example.net/hook", "x-secret", "webhook is no URL"},
		{"store: postgres://u@h/d", "store: mysql://u@h/d", ":3:"},
		{"lab: lab.yaml", "lab: local", "cannot install"},
		{"alarm: {", "alert: {", `no key "alert"`},
		{"grace: 3h", "grace: 3", "such as 3m"},
	} {
		text := strings.Replace(wholeBed, tt.old, tt.new, 1)
		if text == wholeBed {
			t.Fatalf("the file has no %q", tt.old)
		}

		_, err := Read(write(t, file, text, 0o600), anyway)
		told := ""
		if err != nil {
			told = err.Error() + hintsOf(err)
		}

		if !errors.Is(err, app.ErrUsage) || !strings.Contains(told, tt.want) ||
			strings.Contains(told, "secret") {
			t.Errorf("%s instead of %s: got %v, want %s", tt.new, tt.old, told, tt.want)
		}
	}
}

func hintsOf(err error) (text string) {
	for _, e := range app.Leaves(err) {
		var h interface{ Hint() string }
		if errors.As(e, &h) {
			text += "; " + h.Hint()
		}
	}
	return text
}

// After a pause, the last time is made up for once; a time for which there is a job is not due.
func TestTick(t *testing.T) {
	c, err := parseCron("0 2 * * *")
	if err != nil {
		t.Fatal(err)
	}

	day := func(d, hour int) time.Time { return time.Date(2026, 11, d, hour, 0, 0, 0, time.Local) }
	for _, tt := range []struct{ newest, since, now, want time.Time }{
		{time.Time{}, day(10, 12), day(10, 23), time.Time{}},
		{time.Time{}, day(10, 12), day(11, 3), day(11, 2)},
		{day(11, 2), day(10, 12), day(11, 3), time.Time{}},
		{day(11, 2), day(10, 12), day(15, 3), day(15, 2)},
		{day(1, 2).AddDate(-5, 0, 0), day(1, 2), day(15, 3), day(15, 2)},
	} {
		if got := tick(c, tt.newest, tt.since, tt.now); !got.Equal(tt.want) {
			t.Errorf("newest %v, since %v, now %v: got %v, want %v", tt.newest, tt.since, tt.now, got,
				tt.want)
		}
	}
}
