package plan

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	yaml "go.yaml.in/yaml/v4"

	"github.com/chokepoint-lab/chokepoint/internal/check"
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
	maxBedText  = 1000
	maxBedItems = 50
	defaultLook = time.Minute
	minLook     = time.Second
	maxLook     = 24 * time.Hour
	defaultTime = 6 * time.Hour
	maxGrace    = 14 * 24 * time.Hour
)

// ReadBed reads a bed file. file is the name of the file for messages. whole checks the content. If whole
// returns an error, key is the wrong key, such as schedules.nightly.cron. The error of ReadBed is an *Error
// or, if there are several mistakes, several joined *Errors.
func ReadBed(file string, data []byte, whole func(Bed) (key string, err error)) (b Bed, err error) {
	r := &reader{
		file:   file,
		wrong:  map[*yaml.Node]bool{},
		origin: map[*yaml.Node]string{},
		broken: map[string]bool{},
	}
	root, err := r.tree(data)
	if empty, ok := errors.AsType[*Error](err); ok && empty.Text == emptyPlan {
		empty.Text, empty.HintText = "the bed file is empty", "docs/howto/testbed.md shows one"
	}

	if err != nil {
		return b, err
	}

	x := &bedReader{reader: r, places: map[string]*yaml.Node{}}
	failed := r.note(x.object("", root, "the bed file", []field{
		r.text("name", maxBedText, &b.Name),
		r.text("lab", maxBedText, &b.Lab),
		r.text("store", maxBedText, &b.Store),
		r.text("database", maxBedText, &b.Database),
		r.text("firmware", maxBedText, &b.Firmware),
		r.text("good", maxBedText, &b.Good),
		r.text("canary", maxBedText, &b.Canary),
		r.text("metrics", maxBedText, &b.Metrics),
		{"plans", func(n *yaml.Node) error {
			return x.named(n, "plans", func(name string, n *yaml.Node) error {
				p := BedPlan{Name: name}
				err := r.text("plan", maxBedText, &p.Plan).read(n)
				b.Plans = append(b.Plans, p)
				return err
			})
		}},
		{"schedules", func(n *yaml.Node) error {
			return x.named(n, "schedules", func(name string, n *yaml.Node) error {
				s := BedSchedule{Name: name, Grace: defaultTime}
				err := x.schedule(n, &s)
				b.Schedules = append(b.Schedules, s)
				return err
			})
		}},
		{"triggers", func(n *yaml.Node) error {
			return x.named(n, "triggers", func(name string, n *yaml.Node) error {
				t := BedTrigger{Name: name, Every: defaultLook}
				err := x.trigger(n, &t)
				b.Triggers = append(b.Triggers, t)
				return err
			})
		}},
		{"alarm", func(n *yaml.Node) error {
			return x.object("alarm.", n, "alarm", []field{
				x.command(&b.Alarm.Command),
				r.text("webhook", maxBedText, &b.Alarm.Webhook),
			})
		}},
	}))
	b.Lab = cmp.Or(b.Lab, "local")
	if failed == nil && len(b.Plans) == 0 {
		_ = r.note(r.fail(root, "such as plans: {night: night.yaml}", "the bed file names no plans"))
	}

	if len(r.errs) > 0 {
		return Bed{}, together(r.errs)
	}

	key, err := whole(b)
	if err == nil {
		return b, nil
	}

	at := root // place of the key, or of the nearest key that contains it
	for rest := key; rest != ""; rest = rest[:max(0, strings.LastIndexByte(rest, '.'))] {
		if n := x.places[rest]; n != nil {
			at = n
			break
		}
	}

	return Bed{}, r.fail(at, check.HintOf(err), "%v", err)
}

// bedReader notes the place of each key.
type bedReader struct {
	*reader
	places map[string]*yaml.Node // maps a full key, such as alarm.webhook, to its node
}

func (x *bedReader) object(prefix string, n *yaml.Node, what string, fields []field) error {
	for i, f := range fields {
		fields[i].read = func(n *yaml.Node) error {
			x.places[prefix+f.name] = n
			return f.read(n)
		}
	}
	return x.reader.object(n, what, fields)
}

// named reads a map whose keys are names that the user chooses.
func (x *bedReader) named(n *yaml.Node, what string, read func(name string, n *yaml.Node) error) error {
	count := 0
	return x.pairs(n, what, func(key, value *yaml.Node) error {
		if !nameForm().MatchString(key.Value) || strings.Contains(key.Value, ".") {
			return x.fail(key, "use letters, digits, dashes and underscores, at most 64",
				"%q is not a name in %s", key.Value, what)
		}

		if count++; count > maxBedItems {
			return x.fail(key, "", "%s has more than %d entries", what, maxBedItems)
		}

		x.places[what+"."+key.Value] = value
		return read(key.Value, value)
	})
}

func (x *bedReader) schedule(n *yaml.Node, s *BedSchedule) error {
	err := x.object("schedules."+s.Name+".", n, "schedule "+s.Name, []field{
		x.text("cron", maxBedText, &s.Cron),
		x.list("plans", &s.Plans),
		x.duration("grace", time.Minute, maxGrace, &s.Grace),
	})
	switch {
	case err != nil:
		return err
	case s.Cron == "":
		return x.fail(n, `such as cron: "0 2 * * *", every night at two`, "schedule %s has no cron", s.Name)
	case len(s.Plans) == 0:
		return x.fail(n, "such as plans: [night]", "schedule %s has no plans", s.Name)
	}
	return nil
}

func (x *bedReader) trigger(n *yaml.Node, t *BedTrigger) error {
	err := x.object("triggers."+t.Name+".", n, "trigger "+t.Name, []field{
		x.text("directory", maxBedText, &t.Directory),
		x.text("match", maxBedText, &t.Match),
		x.text("url", maxBedText, &t.URL),
		x.yesNo("allow_private", &t.AllowPrivate),
		x.text("git", maxBedText, &t.Git),
		x.text("ref", maxBedText, &t.Ref),
		x.command(&t.Command),
		x.list("plans", &t.Plans),
		x.duration("every", minLook, maxLook, &t.Every),
	})
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
		return x.fail(n, "name one of directory, url, git and command", "trigger %s has %d sources", t.Name,
			sources)
	case t.Match != "" && t.Directory == "", t.AllowPrivate && t.URL == "", (t.Ref != "") != (t.Git != ""):
		return x.fail(n, "match goes with directory, allow_private with url, ref with git",
			"trigger %s has a key that does not belong to a trigger of kind %s", t.Name, t.Kind())
	case len(t.Plans) == 0:
		return x.fail(n, "such as plans: [quick]", "trigger %s has no plans", t.Name)
	}
	return nil
}

func (x *bedReader) list(what string, into *[]string) field {
	return field{what, func(n *yaml.Node) (err error) {
		*into, err = x.words(n, what, maxBedText, maxBedItems, "name fewer")
		if err == nil && len(slices.Compact(slices.Sorted(slices.Values(*into)))) < len(*into) {
			err = x.fail(n, "name each once", "%s has an entry twice", what)
		}
		return err
	}}
}

func (x *bedReader) command(into *[]string) field {
	return field{"command", func(n *yaml.Node) (err error) {
		*into, err = x.words(n, "command", maxBedText, maxWords, "write a script of it")
		return err
	}}
}
