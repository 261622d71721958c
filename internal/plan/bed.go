package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v4"
)

// Bed is the content of a bed file, which describes the work of one testbed.
type Bed struct {
	Name      string // name of the testbed; "" means the name of the machine
	Lab       string // local, vm, vm:ARCH or a lab file
	Store     string // store for the runs; "" means the store in use
	Database  string // URL of the PostgreSQL database of the jobs; "" means a file of the testbed
	Firmware  string // version that schedules and requests measure; "" means the installed version
	Good      string // version with which triggers compare new versions; "" means none
	Canary    string // version that is measured beside Firmware and never changes; "" means none
	Plans     []BedPlan
	Schedules []BedSchedule
	Triggers  []BedTrigger
	Alarm     BedAlarm
	Metrics   string // address of the listener for Prometheus; "" means none
}

// BedPlan is a plan of a testbed.
type BedPlan struct{ Name, Plan string }

// BedSchedule starts a job at the times of a cron expression.
type BedSchedule struct {
	Name, Cron string
	Plans      []string
	Grace      time.Duration // time within which a job must end, counted from its scheduled time
}

// BedTrigger starts a job for each new version. One of Directory, URL, Git and Command is set.
type BedTrigger struct {
	Name         string
	Directory    string // directory of images
	Match        string // pattern of the images' names
	URL          string
	Git, Ref     string // repository, and the ref in it
	Command      []string
	AllowPrivate bool // whether the URL may be at a private address
	Every        time.Duration
	Plans        []string
}

// Kind returns the kind of a trigger: directory, url, git or command.
func (t BedTrigger) Kind() string {
	switch {
	case t.Directory != "":
		return "directory"
	case t.URL != "":
		return "url"
	case t.Git != "":
		return "git"
	}
	return "command"
}

// BedAlarm names the receivers of a testbed's alarms.
type BedAlarm struct {
	Command []string // gets the alarm as JSON on its standard input
	Webhook string   // URL to which the alarm is posted as JSON
}

// These are the limits and defaults of a bed file.
const (
	maxBedItems = 50
	defaultLook = time.Minute
	minLook     = time.Second
	maxLook     = 24 * time.Hour
	defaultTime = 6 * time.Hour
	maxGrace    = 14 * 24 * time.Hour
)

// ReadBed reads a bed file. file is the name of the file for messages. whole checks the content, and may
// complete it. If whole returns an error, key is the wrong key, such as schedules.nightly.cron. The error of
// ReadBed names the place. If there are several mistakes, it consists of several joined *Errors.
func ReadBed(file string, data []byte, whole func(*Bed) (key string, err error)) (Bed, error) {
	r := newReader(file, "the bed file is empty", "docs/howto/testbed.md shows one")
	return readWhole(r, data, r.bed, whole)
}

// bed reads the keys of a bed file.
func (r *reader) bed(root *yaml.Node, b *Bed) {
	failed := r.note(r.object(root, "the bed file", r.placed("", []field{
		r.text("name", maxText, &b.Name),
		r.text("lab", maxText, &b.Lab),
		r.text("store", maxText, &b.Store),
		r.text("database", maxText, &b.Database),
		r.text("firmware", maxText, &b.Firmware),
		r.text("good", maxText, &b.Good),
		r.text("canary", maxText, &b.Canary),
		r.text("metrics", maxText, &b.Metrics),
		r.entries("plans", func(name string, n *yaml.Node) error {
			p := BedPlan{Name: name}
			err := r.text("plan", maxText, &p.Plan).read(n)
			b.Plans = append(b.Plans, p)
			return err
		}),
		r.entries("schedules", func(name string, n *yaml.Node) error {
			s := BedSchedule{Name: name, Grace: defaultTime}
			err := r.schedule(n, &s)
			b.Schedules = append(b.Schedules, s)
			return err
		}),
		r.entries("triggers", func(name string, n *yaml.Node) error {
			t := BedTrigger{Name: name, Every: defaultLook}
			err := r.trigger(n, &t)
			b.Triggers = append(b.Triggers, t)
			return err
		}),
		{"alarm", func(n *yaml.Node) error {
			return r.object(n, "alarm", r.placed("alarm.", []field{
				r.command(&b.Alarm.Command),
				r.text("webhook", maxText, &b.Alarm.Webhook),
			}))
		}},
	})))
	b.Lab = cmp.Or(b.Lab, "local")
	if failed == nil && len(b.Plans) == 0 {
		_ = r.note(r.fail(root, "such as plans: {night: night.yaml}", "the bed file names no plans"))
	}
}

// readWhole reads a file with the function read, and then calls whole, which checks the content. If whole
// returns an error, key is the wrong key.
func readWhole[T any](r *reader, data []byte, read func(*yaml.Node, *T),
	whole func(*T) (key string, err error)) (x T, err error) {
	root, err := r.tree(data)
	if err != nil {
		return x, err
	}

	read(root, &x)
	if len(r.errs) > 0 {
		return x, together(r.errs)
	}

	key, err := whole(&x)
	if err != nil {
		at := r.nodeOf(key)
		err = fmt.Errorf("%s:%d:%d: %w", r.file, at.Line, at.Column, err)
	}

	return x, err
}

// placed makes fields record the places of their keys. A full key has the given prefix.
func (r *reader) placed(prefix string, fields []field) []field {
	for i, f := range fields {
		fields[i].read = func(n *yaml.Node) error {
			r.places[prefix+f.name] = n
			return f.read(n)
		}
	}
	return fields
}

// nodeOf returns the node of a full key or, if there is none, of the nearest key that contains it. The node
// of a machine is that of the machine's address.
func (r *reader) nodeOf(key string) *yaml.Node {
	at := r.places[key+".at"]
	for ; at == nil && key != ""; key = key[:max(0, strings.LastIndexByte(key, '.'))] {
		at = r.places[key]
	}
	return cmp.Or(at, r.root)
}

// entries reads a map whose keys are names that the user chooses.
func (r *reader) entries(what string, read func(name string, n *yaml.Node) error) field {
	return field{what, func(n *yaml.Node) error {
		count := 0
		return r.pairs(n, what, func(key, value *yaml.Node) error {
			if !nameForm().MatchString(key.Value) || strings.Contains(key.Value, ".") {
				return r.fail(key, "use letters, digits, dashes and underscores, at most 64",
					"%q is not a name in %s", key.Value, what)
			}

			if count++; count > maxBedItems {
				return r.fail(key, "", "%s has more than %d entries", what, maxBedItems)
			}

			r.places[what+"."+key.Value] = value
			return read(key.Value, value)
		})
	}}
}

func (r *reader) schedule(n *yaml.Node, s *BedSchedule) error {
	err := r.object(n, "schedule "+s.Name, r.placed("schedules."+s.Name+".", []field{
		r.text("cron", maxText, &s.Cron),
		r.plans(&s.Plans),
		r.duration("grace", time.Minute, maxGrace, &s.Grace),
	}))
	switch {
	case err != nil:
		return err
	case s.Cron == "":
		return r.fail(n, `such as cron: "0 2 * * *", every night at two`, "schedule %s has no cron", s.Name)
	case len(s.Plans) == 0:
		return r.fail(n, "such as plans: [night]", "schedule %s has no plans", s.Name)
	}
	return nil
}

func (r *reader) trigger(n *yaml.Node, t *BedTrigger) error {
	err := r.object(n, "trigger "+t.Name, r.placed("triggers."+t.Name+".", []field{
		r.text("directory", maxText, &t.Directory),
		r.text("match", maxText, &t.Match),
		r.text("url", maxText, &t.URL),
		r.yesNo("allow_private", &t.AllowPrivate),
		r.text("git", maxText, &t.Git),
		r.text("ref", maxText, &t.Ref),
		r.command(&t.Command),
		r.plans(&t.Plans),
		r.duration("every", minLook, maxLook, &t.Every),
	}))
	if err != nil {
		return err
	}

	sources := 0
	for _, set := range []bool{t.Directory != "", t.URL != "", t.Git != "", len(t.Command) > 0} {
		if set {
			sources++
		}
	}

	switch {
	case sources != 1:
		return r.fail(n, "name one of directory, url, git and command", "trigger %s has %d sources", t.Name,
			sources)
	case t.Match != "" && t.Directory == "", t.AllowPrivate && t.URL == "", (t.Ref != "") != (t.Git != ""):
		return r.fail(n, "match goes with directory, allow_private with url, ref with git",
			"trigger %s has a key that does not belong to a trigger of kind %s", t.Name, t.Kind())
	case len(t.Plans) == 0:
		return r.fail(n, "such as plans: [quick]", "trigger %s has no plans", t.Name)
	}
	return nil
}

// plans reads the names of plans.
func (r *reader) plans(into *[]string) field {
	of := r.words("plans", maxText, maxBedItems, "name fewer", into)
	return field{of.name, func(n *yaml.Node) error {
		err := of.read(n)
		if err == nil && len(slices.Compact(slices.Sorted(slices.Values(*into)))) < len(*into) {
			err = r.fail(n, "name each once", "plans has an entry twice")
		}
		return err
	}}
}
