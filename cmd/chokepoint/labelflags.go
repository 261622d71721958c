package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// runLabels holds the user's name, device and notes for a run.
type runLabels struct {
	name, device string
	notes        []string
}

func (l *runLabels) addFlags(f *pflag.FlagSet) {
	f.StringVar(&l.name, "name", "", "call the run `NAME`, as rename does")
	f.StringVar(&l.device, "device", "",
		"`NAME` of the router under test, such as 'GL.iNet MT6000, OpenWrt 24.10'")
	f.StringArrayVar(&l.notes, "note", nil, "store this `TEXT` with the run; may be repeated")
}

// given reports whether any label is set.
func (l *runLabels) given() bool { return l.name+l.device != "" || len(l.notes) > 0 }

// check returns an error if the name is not valid, or if a text is not a single short line.
func (l *runLabels) check() error {
	if l.name != "" {
		if err := store.CheckName(l.name); err != nil {
			return app.Mark(app.ErrUsage, err)
		}
	}

	if err := oneLine("--device", l.device, record.MaxDevice); err != nil {
		return err
	}

	if len(l.notes) > record.MaxNotes {
		return app.Usage("write fewer", "--note: %d are more than %d", len(l.notes), record.MaxNotes)
	}

	for _, note := range l.notes {
		if note == "" {
			return app.Usage("leave it out, or give it a value", "--note is empty")
		}

		if err := oneLine("--note", note, record.MaxNote); err != nil {
			return err
		}
	}

	return nil
}

// oneLine returns an error if the text of a flag is too long or has several lines.
func oneLine(flag, text string, most int) error {
	switch {
	case len(text) > most:
		return app.Usage("", "%s has %d bytes, at most %d are allowed", flag, len(text), most)
	case text != check.Plain(text), strings.ContainsAny(text, "\n\t"):
		return app.Usage("write one line", "%s contains a control character", flag)
	}
	return nil
}

// describe adds the labels to a run. The plan and the lab may also contain a device and notes.
func (l *runLabels) describe(head *record.RunHead) {
	head.Name = l.name
	if l.device != "" {
		head.Device = l.device
	}

	head.Notes = append(head.Notes, l.notes...)
}
