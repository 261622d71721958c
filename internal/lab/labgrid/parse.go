package labgrid

import (
	"slices"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// none is the text that labgrid prints instead of a holder if nobody has acquired a place.
const none = "None"

// place holds the properties of a place that labgrid-client prints.
type place struct {
	name        string
	tags        []string // KEY=VALUE
	acquired    string   // HOST/USER; "" if nobody has acquired it
	resources   []string // EXPORTER/GROUP/CLASS/NAME of the acquired resources
	reservation string   // token of a reservation
}

// reservation holds the properties of a reservation that labgrid-client prints.
type reservation struct{ token, owner, place string }

// heading matches the line that begins a place or a reservation.
var heading = check.Pattern(`^(Place|Reservation) '(.*)':$`)

// block is a place or a reservation in the output of labgrid-client. For each key, it holds the value, or the
// lines that are indented below the key.
type block struct {
	name string
	of   map[string][]string
}

func (b block) value(key string) string { return strings.Join(b.of[key], " ") }

// blocks parses all places and reservations in the output of labgrid-client.
func blocks(out string) (all []block) {
	inside := false
	key := ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		text := strings.TrimLeft(line, " ")
		switch indent := len(line) - len(text); {
		case indent == 0: // resources or a message may follow a block
			m := heading().FindStringSubmatch(line)
			if inside = m != nil; inside {
				all = append(all, block{m[2], map[string][]string{}})
			}

			continue
		case indent == 2:
			key, text, _ = strings.Cut(text, ":")
		case indent != 4:
			continue
		}

		if text = strings.TrimSpace(text); inside && text != "" {
			of := all[len(all)-1].of
			of[key] = append(of[key], text)
		}
	}
	return all
}

// parsePlaces parses the output of "labgrid-client -v places" and of "labgrid-client show".
func parsePlaces(out string) (all []place) {
	for _, b := range blocks(out) {
		p := place{name: b.name, tags: parseTags(b.value("tags")), reservation: b.value("reservation")}
		if holder := b.value("acquired"); holder != none {
			p.acquired = holder
		}

		for _, path := range b.of["acquired resources"] {
			path, _, _ = strings.Cut(path, " -> ") // drop the resource's name in the place's match
			p.resources = append(p.resources, path)
		}

		all = append(all, p)
	}
	return all
}

// parseTags parses "a=b, c=d". A value may contain a comma.
func parseTags(text string) (tags []string) {
	for part := range strings.SplitSeq(text, ", ") {
		switch {
		case strings.Contains(part, "="):
			tags = append(tags, part)
		case len(tags) > 0:
			tags[len(tags)-1] += ", " + part
		}
	}
	return tags
}

// parseReservations parses the output of "labgrid-client reserve", "reservations" and "wait". The output of
// "wait" repeats a single reservation, without a heading.
func parseReservations(out string) (all []reservation) {
	if strings.HasPrefix(out, "owner: ") {
		out = strings.ReplaceAll("\n"+out, "\n", "\n  ")
		out = strings.ReplaceAll(out, "\n  owner: ", "\nReservation '-':\n  owner: ")
	}

	for _, b := range blocks(out) {
		_, place, _ := strings.Cut(b.value("allocations"), ": ")
		all = append(all, reservation{b.value("token"), b.value("owner"), place})
	}

	return all
}

// classes returns the classes of the acquired resources, without duplicates.
func (p place) classes() (all []string) {
	for _, path := range p.resources {
		parts := strings.Split(path, "/")
		if len(parts) > 2 && !slices.Contains(all, parts[2]) {
			all = append(all, parts[2])
		}
	}
	return all
}

// has reports whether the place has all tags. Like labgrid, it treats the name as a tag.
func (p place) has(tags []string) bool {
	for _, t := range tags {
		if t != "name="+p.name && !slices.Contains(p.tags, t) {
			return false
		}
	}
	return true
}

// versions matches the output of "labgrid-client version".
var versions = check.Pattern(`^([0-9]{1,4})\.[0-9]+\S*$`)

// parseVersion returns the last line of the output, and the major version in that line. ok is false if the
// line is not a version.
func parseVersion(out string) (version string, major int, ok bool) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	m := versions().FindStringSubmatch(strings.TrimSpace(lines[len(lines)-1]))
	if m == nil {
		return "", 0, false
	}

	major, err := strconv.Atoi(m[1])
	return m[0], major, err == nil
}
