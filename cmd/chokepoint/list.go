package main

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/chokepoint-lab/chokepoint/internal/app"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

func newListCommand(p *program) *cobra.Command {
	return addJSON(&cobra.Command{
		Use:   "list",
		Short: "List the stored runs, newest first",
		Long: `List the stored runs, the most recently stored first. If there are none, it prints
nothing. RUN is the run's name, or else the shortest prefix of its id that no other run
has. DEVICE is the device, if it is known, and the lab. VARIED lists the factors with
several levels, and the levels that are numbers. BEST is the highest goodput of all
cells, or what the run measured instead. IN is the cell with that result; ! marks a
suspect cell. A terminal shows only the columns that fit into its width; other output
and --json contain all columns.

For an imported run, PLAN is the program that measured it and the imported file, and
WHEN is the time of the measurement, if the file contains it.

The store is that of --store, else of $CHOKEPOINT_STORE, else the file
$XDG_DATA_HOME/chokepoint/runs.db, else ~/.local/share/chokepoint/runs.db.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			runs, unread := p.Dirs.Runs(cmd.Context())
			if len(runs) == 0 {
				return unread
			}

			text := listText(runs, time.Now(), p.width())
			return errors.Join(unread, printLines(p, each(runs, app.ListedOf), text))
		},
	}, "print one JSON object per run")
}

// shrinking lists the columns that may be shortened to fit, with their minimum widths. Names of runs may be
// shortened, but not ids.
var shrinking = [...]struct{ column, least int }{{0, minuteOfID}, {2, 8}, {3, 6}, {4, 8}}

// listText formats runs for a width in columns; 0 means unlimited.
func listText(runs []store.Head, now time.Time, width int) string {
	rows := heading("RUN | WHEN | DEVICE | PLAN | VARIED | BEST | IN")
	short := shortIDs(runs)
	ids := 0
	for i, r := range runs {
		if r.Name == "" {
			ids = max(ids, utf8.RuneCountInString(short[i]))
		}

		best, in := app.BestWords(r)
		rows.add(cmp.Or(line(r.Name), short[i]), when(r.Started.Local(), now),
			line(strings.Trim(r.Device+" · "+r.Lab, " ·")), line(r.Plan),
			line(app.VariedWords(r.Varied)), best, line(in))
	}

	if width > 0 {
		fit(rows, width, ids)
	}

	return trimmed(table(rows, 0))
}

// line returns text without line breaks, because the text may come from someone else's store.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }

// fit shortens rows to a width as far as possible. It first shortens the last column, or drops it if little
// of it would remain. Then it shortens the widest of the shrinking columns. It keeps at least ids characters
// of the first column, so that ids remain whole.
func fit(rows grid, width, ids int) {
	const seen = 8
	wide := widths(rows)
	last := len(wide) - 1
	wide[last] = min(wide[last], width-columnGap-sumOf(wide[:last]))
	if wide[last] < seen {
		for _, r := range rows {
			r[last] = ""
		}

		wide = wide[:last]
	}

	for sumOf(wide) > width {
		at := -1
		for _, s := range shrinking {
			least := s.least
			if s.column == 0 {
				least = max(least, ids)
			}

			if wide[s.column] > least && (at < 0 || wide[s.column] > wide[at]) {
				at = s.column
			}
		}

		if at < 0 {
			break
		}

		wide[at]--
	}

	for _, r := range rows {
		for i, most := range wide {
			r[i] = cut(r[i], most)
		}
	}
}

// cut shortens text to a maximum number of characters. The ellipsis counts as one of them.
func cut(text string, most int) string {
	letters := []rune(text)
	if len(letters) <= most {
		return text
	}
	return strings.TrimRight(string(letters[:most-1]), " ,×") + "…"
}

// minuteOfID is the length of an id up to the minute of the run.
const minuteOfID = len("20060102-1504")

// shortIDs returns the shortest unique prefix of each run's id, but at least up to the minute. It does not
// shorten ids that are not valid.
func shortIDs(runs []store.Head) []string {
	ids := each(runs, func(r store.Head) string { return r.ID })
	sorted := slices.Sorted(slices.Values(ids))
	short := make([]string, len(ids))
	for i, id := range ids {
		at, _ := slices.BinarySearch(sorted, id)
		n := minuteOfID
		for _, other := range []int{at - 1, at + 1} {
			if other >= 0 && other < len(sorted) {
				n = max(n, common(id, sorted[other])+1)
			}
		}

		short[i] = app.ShownID(id)
		if store.ValidID(id) {
			short[i] = id[:min(n, len(id))]
		}
	}

	return short
}

// common returns the length of the common prefix of two texts in bytes.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// recent is the age below which a run is listed with its time of day instead of its year.
const recent = 300 * 24 * time.Hour

func when(started, now time.Time) string {
	age := now.Sub(started)
	if age > recent || age < -24*time.Hour {
		return started.Format("_2 Jan  2006")
	}
	return started.Format("_2 Jan 15:04")
}
