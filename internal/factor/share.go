package factor

import (
	"regexp"
	"strconv"
	"strings"
)

// A rate may be given as a share: "90% of 300M" is another way to write 270M; "90% of found" is a share of
// what the same cell carries flat out, as found by its trials in the same campaign, or of what its search
// finds.
const greatestPart = 200 // per cent

// OfFound ends the level of a rate that is a share of what another cell finds.
const OfFound = "% of found"

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
		return strconv.FormatFloat(part, 'f', -1, 64) + OfFound, nil
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
	Of    Cell
}

// FoundOf says whether a cell's load is a share of a rate that is to be found: by rate, of UDP, or by
// pacing, of TCP.
func FoundOf(cell Cell) (Found, bool) {
	for _, f := range [...]struct {
		rate Name
		full string // the level of one that is not a share
	}{{Rate, Flat}, {Pacing, ""}} {
		text, ok := strings.CutSuffix(f.rate.Of(cell), OfFound)
		if part, err := strconv.ParseFloat(text, 64); ok && err == nil {
			return Found{part / 100, f.rate.With(cell, f.full)}, true
		}
	}
	return Found{}, false
}
