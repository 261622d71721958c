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
type reservation struct{ token, owner, state, place string }

// heading matches the line that begins a place or a reservation.
var heading = check.Pattern(`^(Place|Reservation) '(.*)':$`)

// eachBlock calls f for each heading, and for each line below it. f receives the name in the heading, the key
// of the line under which this line is indented, and the key and value of the line itself. Values that do not
// exist are "".
func eachBlock(out string, f func(name, above, key, value string)) {
	name, above := "", ""
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if m := heading().FindStringSubmatch(line); m != nil {
			name, above = m[2], ""
			f(name, "", "", "")
			continue
		}

		text := strings.TrimLeft(line, " ")
		key, value, ok := strings.Cut(text, ": ")
		if strings.HasSuffix(text, ":") {
			key, value, ok = strings.TrimSuffix(text, ":"), "", true
		}

		switch indent := len(line) - len(text); {
		case name == "" || text == "" || indent == 0:
			name = "" // the block has ended; resources or a message follow
		case indent == 2 && ok:
			above = key
			f(name, "", key, value)
		case indent == 4 && ok && above != "acquired resources":
			f(name, above, key, value)
		case indent == 4:
			f(name, above, "", text)
		}
	}
}

// parsePlaces parses the output of "labgrid-client -v places" and of "labgrid-client show".
func parsePlaces(out string) (all []place) {
	eachBlock(out, func(name, above, key, value string) {
		if above+key+value == "" {
			all = append(all, place{name: name})
			return
		}

		p := &all[len(all)-1]
		switch {
		case above == "acquired resources":
			path, _, _ := strings.Cut(value, " -> ") // drop the resource's name in the place's match
			p.resources = append(p.resources, path)
		case above != "":
		case key == "tags":
			p.tags = parseTags(value)
		case key == "acquired" && value != none:
			p.acquired = value
		case key == "reservation":
			p.reservation = value
		}
	})
	return all
}

// parseTags parses "a=b, c=d". A value may contain a comma.
func parseTags(text string) (tags []string) {
	for part := range strings.SplitSeq(text, ", ") {
		if !strings.Contains(part, "=") && len(tags) > 0 {
			tags[len(tags)-1] += ", " + part
			continue
		}

		tags = append(tags, part)
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

	eachBlock(out, func(_, above, key, value string) {
		if above+key+value == "" {
			all = append(all, reservation{})
			return
		}

		r := &all[len(all)-1]
		switch {
		case above == "allocations":
			r.place = value
		case above != "":
		case key == "owner":
			r.owner = value
		case key == "token":
			r.token = value
		case key == "state":
			r.state = value
		}
	})
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
