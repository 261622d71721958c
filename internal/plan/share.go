package plan

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A rate may be given as a share: "90% of 300M" is another way to write 270M; "90% of found" is a share of
// what the same cell carries flat out, as found by its trials in the same campaign, or of what its search
// finds.
const greatestPart = 200 // per cent

var shareForm = regexp.MustCompile(`^([0-9]{1,3}(?:\.[0-9]{1,3})?) ?% ?of (\S.*)$`)

// shareOf reads a level that may be a share of another; of a stated rate it is that part of it.
func shareOf(text string, parse func(string) (string, error)) (string, error) {
	m := shareForm.FindStringSubmatch(text)
	if m == nil {
		return parse(text)
	}
	part, err := strconv.ParseFloat(m[1], 64)
	if err != nil || part <= 0 || part > greatestPart {
		return "", &LevelError{Text: text,
			Want: "a share of more than 0 % and at most 200 %, such as 90% of 300M"}
	}
	if m[2] == "found" {
		return strconv.FormatFloat(part, 'f', -1, 64) + record.OfFound, nil
	}
	whole, err := parse(m[2])
	if err != nil {
		return "", err
	}
	rate, ok := rateValue(whole)
	if !ok {
		return "", &LevelError{Text: text, Want: "a share of a bit rate, or of found, such as 90% of found"}
	}
	// A tenth of a bit per second is not written.
	return parse(strconv.FormatFloat(rate*part/100, 'f', 0, 64))
}

// Found is what a cell's load is a share of: the rate that the cell Of, which is the same but flat out, is
// found to carry.
type Found struct {
	Share float64 // of 1
	Of    record.Factors
}

// FoundOf says whether a cell's load is a share of a rate that is to be found: by rate, of UDP, or by
// pacing, of TCP.
func FoundOf(cell record.Factors) (Found, bool) {
	for _, name := range []string{"rate", "pacing"} {
		text, ok := strings.CutSuffix(cell[name], record.OfFound)
		part, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			continue
		}
		of := cell.Clone()
		if name == "rate" {
			of[name] = flat
		} else {
			delete(of, name) // not paced
		}
		return Found{part / 100, of}, true
	}
	return Found{}, false
}

// dropUnfound skips the cells whose load is a share of a rate that no cell of the plan finds.
func (e *expansion) dropUnfound() {
	have := map[string]bool{}
	for _, c := range e.cells {
		have[c.Key()] = true
	}
	e.cells = slices.DeleteFunc(e.cells, func(c record.Factors) bool {
		found, ok := FoundOf(c)
		if !ok || have[found.Of.Key()] {
			return false
		}
		e.skipped = append(e.skipped, record.Skipped{Factors: c,
			Reason: "no cell that is the same otherwise goes as fast as it can (rate: flat, or no pacing), " +
				"so that there is no rate to take a share of"})
		return true
	})
}

// findersFirst puts cells whose load is a share of a rate to be found behind the others of their group, so
// that each block finds before it takes a share.
func findersFirst(group []record.Factors) []record.Factors {
	var first, last []record.Factors
	for _, c := range group {
		if _, ok := FoundOf(c); ok {
			last = append(last, c)
		} else {
			first = append(first, c)
		}
	}
	return append(first, last...)
}
