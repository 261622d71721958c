package bed

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// maxName is the maximum length of a testbed's name, which must fit into the name of a database schema.
const maxName = 40

// Read reads a bed file. Paths in the file are relative to the file, and Read makes them absolute. The
// function usable checks what the file names. If it returns an error, key is the wrong key. Every error is an
// app.ErrUsage.
func Read(file string, usable func(plan.Bed) (key string, err error)) (plan.Bed, error) {
	data, err := host.ReadTrusted(file)
	if err != nil {
		return plan.Bed{}, app.Usage(cmp.Or(check.HintOf(err), "docs/howto/testbed.md shows one"),
			"read bed file %s: %v", file, check.Underlying(err))
	}

	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return plan.Bed{}, err
	}

	b, err := plan.ReadBed(file, data, func(b *plan.Bed) (key string, err error) {
		if b.Name == "" {
			name, _ := os.Hostname()
			b.Name, _, _ = strings.Cut(strings.ToLower(name), ".")
		}

		settle(b, dir)
		if key, err = wrong(*b); err == nil {
			key, err = usable(*b)
		}
		return key, err
	})
	return b, app.Mark(app.ErrUsage, err)
}

// settle makes paths absolute.
func settle(b *plan.Bed, dir string) {
	absolute := func(path *string) {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	if isFile(b.Lab) {
		absolute(&b.Lab)
	}

	if !store.OnServer(b.Store) {
		absolute(&b.Store)
	}

	for i := range b.Plans {
		if _, known := plan.BuiltIn(b.Plans[i].Plan); !known {
			absolute(&b.Plans[i].Plan)
		}
	}

	commands := [][]string{b.Alarm.Command}
	for i := range b.Triggers {
		absolute(&b.Triggers[i].Directory)
		commands = append(commands, b.Triggers[i].Command)
	}

	for _, c := range commands {
		if len(c) > 0 && strings.HasPrefix(c[0], "./") {
			absolute(&c[0])
		}
	}
}

// isFile reports whether the lab of a bed file is a lab file.
func isFile(lab string) bool {
	return strings.HasSuffix(lab, ".yaml") || strings.HasSuffix(lab, ".yml") || strings.Contains(lab, "/")
}

// wrong returns an error if a bed file is invalid, and the key with the invalid value.
func wrong(b plan.Bed) (key string, err error) {
	if err := store.CheckBedName(b.Name); err != nil || len(b.Name) > maxName {
		hint := fmt.Sprintf("name: up to %d small letters, digits and hyphens, such as lab-2", maxName)
		return "name", app.Usage(hint, "%q cannot be the name of a testbed", check.Plain(b.Name))
	}

	if err := store.CheckURL(b.Store); err != nil {
		return "store", err
	}

	if b.Database != "" {
		if !store.OnServer(b.Database) {
			return "database", app.Usage("without this key, the jobs are in a file of the testbed",
				"database is no URL of a PostgreSQL database")
		}

		if err := store.CheckURL(b.Database); err != nil {
			return "database", err
		}
	}

	for _, v := range [][2]string{{"firmware", b.Firmware}, {"good", b.Good}, {"canary", b.Canary}} {
		if v[1] != "" && !canBoot(b.Lab) {
			return v[0], app.Usage("lab: vm, or a lab file with firmware: {command: …}",
				"lab %s cannot install a version", b.Lab)
		}
	}

	for _, s := range b.Schedules {
		if _, err := parseCron(s.Cron); err != nil {
			return "schedules." + s.Name + ".cron", app.Usage(
				`five fields: minute, hour, day of the month, month, day of the week, such as "0 2 * * *"`,
				"cron %q: %v", s.Cron, err)
		}

		if err := known(b, s.Plans); err != nil {
			return "schedules." + s.Name + ".plans", err
		}
	}

	for _, t := range b.Triggers {
		if key, err := wrongTrigger(t); err != nil {
			return "triggers." + t.Name + "." + key, err
		}

		if err := known(b, t.Plans); err != nil {
			return "triggers." + t.Name + ".plans", err
		}
	}

	if len(b.Alarm.Command) > 0 {
		if err := host.TrustedCommand(b.Alarm.Command); err != nil {
			return "alarm.command", err
		}
	}

	if b.Alarm.Webhook != "" && webURL(b.Alarm.Webhook) != nil {
		// The URL may contain a secret, so the error does not show it.
		return "alarm.webhook", errors.New("the webhook is no URL with https or http")
	}

	return "metrics", wrongListener(b.Metrics)
}

// canBoot reports whether the routers of a lab can run several versions.
func canBoot(lab string) bool {
	arch, err := app.GuestArch(lab)
	return isFile(lab) || (err == nil && arch != "")
}

// known returns an error if one of the plans is not in the bed file.
func known(b plan.Bed, names []string) error {
	all := planNames(b)
	for _, name := range names {
		if !slices.Contains(all, name) {
			return app.Usage(check.Choice(name, "plans of this file", all), "there is no plan %q", name)
		}
	}
	return nil
}

func planNames(b plan.Bed) (names []string) {
	for _, p := range b.Plans {
		names = append(names, p.Name)
	}
	return names
}

// refForm matches git refs that can be watched. A ref that it matches cannot be mistaken for an option of
// git.
var refForm = check.Pattern(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`)

func wrongTrigger(t plan.BedTrigger) (key string, err error) {
	switch t.Kind() {
	case "directory":
		if _, err := path.Match(t.Match, ""); err != nil {
			return "match", app.Usage(`such as "*.bin"`, "match %q is no pattern", t.Match)
		}

		if info, err := os.Stat(t.Directory); err != nil || !info.IsDir() {
			return "directory", fmt.Errorf("%s is no directory", t.Directory)
		}

		return "directory", ownDir(t.Directory)
	case "url":
		if err := webURL(t.URL); err != nil {
			return "url", err
		}

		u, _ := url.Parse(t.URL) // no error, because webURL has parsed the URL
		name := imageName(t.Name, strings.Repeat("0", 64), path.Base(u.Path))
		if !versionForm().MatchString(name) {
			return "url", app.Usage("give the trigger a shorter name that begins with a letter",
				"the name of an image, such as %s, cannot be the name of a version", name)
		}

		return "url", nil
	case "git":
		if !refForm().MatchString(t.Ref) || strings.Contains(t.Ref, "..") {
			return "ref", app.Usage("such as refs/heads/main", "ref %q cannot be watched", t.Ref)
		}

		return "git", gitURL(t.Git)
	}
	return "command", host.TrustedCommand(t.Command)
}

func webURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" {
		return app.Usage("such as https://example.net/firmware.bin", "this is no URL with https or http")
	}
	return nil
}

// gitURL returns an error for a URL with a transport that executes commands. It also returns an error for a
// URL with a secret, because all users of the machine can see the arguments of git.
func gitURL(text string) error {
	u, err := url.Parse(text)
	if err == nil && u.User != nil {
		if _, password := u.User.Password(); password || u.Scheme == "https" {
			return app.Usage("git config --global credential.helper store, or an ssh key",
				"git: a user or password in the URL would show in the list of processes")
		}
	}

	if err == nil && (u.Scheme == "https" || u.Scheme == "ssh") && u.Hostname() != "" &&
		!strings.HasPrefix(u.Hostname(), "-") && !strings.HasPrefix(u.User.Username(), "-") {
		return nil
	}

	if filepath.IsAbs(text) {
		return host.TrustedDir(text)
	}

	return app.Usage("such as https://example.net/x.git, ssh://git@example.net/x.git or /srv/x.git",
		"git: this is no repository that can be watched")
}

func wrongListener(at string) error {
	if at == "" {
		return nil
	}

	h, _, err := net.SplitHostPort(at)
	ip, notIP := netip.ParseAddr(h)
	if err != nil || notIP != nil || !ip.IsLoopback() {
		return app.Usage("such as 127.0.0.1:9101; put a proxy in front of it for other machines",
			"metrics %q is no loopback address with a port", at)
	}
	return nil
}

// parseCron parses the five fields of a cron expression, or a word such as @daily. Times are in the machine's
// time zone.
func parseCron(text string) (cron.Schedule, error) {
	if strings.HasPrefix(text, "@every") {
		return nil, errors.New("@every has no fixed times")
	}

	s, err := cron.ParseStandard(text)
	if err == nil && s.Next(time.Now()).IsZero() {
		err = errors.New("no such day comes in the next five years")
	}
	return s, err
}

// tick returns the time of a schedule for which a job is due, or the zero time if none is due. This is the
// last time of the schedule that is not after now and is later than the newest job. If there is no job yet,
// the time must be later than since, the start of the schedule.
func tick(s cron.Schedule, newest, since, now time.Time) (due time.Time) {
	for next := s.Next(cmp.Or(newest, since)); !next.IsZero() && !next.After(now); next = s.Next(next) {
		due = next
	}
	return due
}
