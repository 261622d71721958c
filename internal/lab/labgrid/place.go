// Package labgrid reserves, acquires, powers and releases a place of a labgrid coordinator. It runs
// labgrid-client, because only that program implements power control, flashing and consoles.
//
// labgrid has no leases: a place stays acquired until somebody releases it. Each run therefore uses its own
// host name to acquire places, and records this name in the journal before it reserves anything. Everything
// that this name holds belongs to the run. The run may therefore release it at any time, and more than once.
package labgrid

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/lab/journal"
	"github.com/chokepoint-lab/chokepoint/internal/record"
	"github.com/chokepoint-lab/chokepoint/internal/unit"
)

const (
	program = "labgrid-client"
	// firstVersion is the first version of labgrid whose coordinator speaks gRPC.
	firstVersion = 25
	// callTime is the time limit for a call to the coordinator. A call usually takes half a second, or a few
	// seconds over ssh.
	callTime = time.Minute
	// releaseTime is the time limit for the attempts at each step of Release, and releasePause is the time
	// between attempts.
	releaseTime  = 30 * time.Second
	releasePause = 2 * time.Second
	// powerTime is the time limit for the power command before the release. It is needed because labgrid
	// waits forever for a dead power port.
	powerTime = 15 * time.Second
)

// ErrNoCoordinator reports that the coordinator does not respond.
var ErrNoCoordinator = fmt.Errorf("%w", host.ErrUnreachable)

// Held is a place that this process has acquired. A nil *Held is valid and holds nothing.
type Held struct {
	client
	Version string   // version of labgrid-client
	Tags    []string // tags of the place, in the form KEY=VALUE
	Classes []string // classes of the place's resources

	journal  *journal.Journal
	seq      int
	acquired bool
	released bool
	tell     func(text string)
}

// client calls labgrid-client for one holder.
type client struct {
	host      host.Host
	place     record.Place
	holder    string // in the form HOST/USER
	powerTime time.Duration
}

// Take reserves a place, acquires it, and cancels the reservation. id names the caller, such as a run, and is
// part of the name that labgrid shows as the holder. Take calls tell with messages for the user: who uses the
// places that Take waits for and, when the place is released, why the board could not be switched off. If
// held is not nil, the caller must call Release, even after an error.
func Take(ctx context.Context, h host.Host, j *journal.Journal, id string, p record.Place,
	tell func(text string)) (held *Held, err error) {
	p.Coordinator = cmp.Or(p.Coordinator, os.Getenv("LG_COORDINATOR"))
	p.Proxy = cmp.Or(p.Proxy, os.Getenv("LG_PROXY"))
	held = &Held{client: client{h, p, Holder(id), powerTime}, journal: j, tell: tell}
	if held.Version, err = held.check(ctx); err != nil {
		return nil, err
	}

	held.seq, err = j.Add(journal.Entry{
		Kind:    journal.KindPlace,
		Lab:     id + "-place",
		Labgrid: &p,
		Holder:  held.holder,
	})
	if err != nil {
		return nil, err
	}

	r, err := held.reserve(ctx)
	if err != nil {
		return held, err
	}

	name := r.place
	out, err := held.call(ctx, "-p", name, "acquire")
	if err != nil {
		return held, fmt.Errorf("acquire place %s: %w", name, err)
	}

	if strings.TrimSpace(out) != "acquired place "+name {
		return held, fmt.Errorf("acquire place %s: %s printed %q", name, program, check.Plain(out))
	}

	held.place.Name, held.acquired = name, true
	// If this call fails, Release cancels the reservation.
	_, _ = held.call(ctx, "cancel-reservation", r.token)
	out, err = held.call(ctx, "-p", name, "show")
	if err != nil {
		return held, err
	}

	for _, p := range parsePlaces(out) {
		held.Tags, held.Classes = p.tags, p.classes()
	}

	return held, nil
}

// Place returns the description of the place, with the name of the place that was acquired.
func (h *Held) Place() record.Place { return h.place }

// Describe describes the place in one line.
func (h *Held) Describe() string {
	return fmt.Sprintf("acquired as %s from the coordinator at %s, by %s %s; resources: %s", h.holder,
		h.coordinator(), program, h.Version, cmp.Or(strings.Join(h.Classes, ", "), "none"))
}

// Holder returns the name HOST/USER under which id acquires places. Only HOST depends on id. USER is the
// user's usual name in labgrid, so that the user can release such a place by hand.
func Holder(id string) string {
	machine, _ := os.Hostname()
	login := cmp.Or(os.Getenv("LG_USERNAME"), os.Getenv("LOGNAME"), os.Getenv("USER"))
	if login == "" {
		if u, err := user.Current(); err == nil {
			login = u.Username
		}
	}

	word := func(text string) string {
		return strings.Map(func(r rune) rune {
			if r <= ' ' || r == '/' || r > '~' {
				return '-'
			}
			return r
		}, text)
	}
	return word(cmp.Or(os.Getenv("LG_HOSTNAME"), machine, "host")) + ".chokepoint-" + id + "/" +
		word(cmp.Or(login, "user"))
}

// check returns the version of labgrid-client, or an error if it is missing or too old, or if the coordinator
// cannot be reached.
func (c client) check(ctx context.Context) (version string, err error) {
	err = host.TrustedCommand([]string{program})
	if errors.Is(err, host.ErrUnsupported) {
		return "", check.WithHint(err, "pipx install labgrid, or activate the environment that has it")
	}

	if err != nil {
		return "", err
	}

	out, err := c.call(ctx, "version")
	version, major, ok := parseVersion(out)
	switch {
	case err == nil && ok && major >= firstVersion:
		return version, nil
	case err == nil && ok:
		return "", tooOld("it is version " + version)
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	}

	help, helpErr := host.Run(ctx, c.host, host.Command{Path: program, Args: []string{"--help"}, Bound: true})
	if helpErr == nil && !bytes.Contains(help, []byte("--coordinator")) {
		return "", tooOld("it has no option --coordinator")
	}

	if err == nil {
		err = fmt.Errorf("%s version printed %q", program, check.Plain(out))
	}

	return "", err
}

func tooOld(why string) error {
	err := fmt.Errorf("%s is too old: %s; %d.0 or later is needed", program, why, firstVersion)
	return check.WithHint(err, "pipx install labgrid; Debian 12 has 0.4.1")
}

// coordinator returns the coordinator's address, for use in messages.
func (c client) coordinator() string {
	at := cmp.Or(c.place.Coordinator, "127.0.0.1:20408")
	if c.place.Proxy != "" {
		at += " through " + c.place.Proxy
	}
	return at
}

// lost lists parts of the messages that labgrid-client prints if it cannot connect to the coordinator or
// loses the connection.
var lost = []string{"ould not connect to coordinator", "coordinator is unavailable",
	"coordinator became unavailable", "failed to connect to all addresses", "Socket closed",
	"Connection reset"}

// call runs a command of labgrid-client that needs nothing but the coordinator, and returns its output.
func (c client) call(ctx context.Context, args ...string) (string, error) {
	within, cancel := host.Within(ctx, callTime)
	defer cancel()
	out, err := host.Run(within, c.host, c.command(args...))
	if err == nil {
		return string(out), nil
	}

	if ctx.Err() == nil && (within.Err() != nil || slices.ContainsFunc(lost,
		func(text string) bool { return strings.Contains(err.Error(), text) })) {
		err = check.WithHint(fmt.Errorf("reach labgrid's coordinator at %s: %w: %w", c.coordinator(),
			ErrNoCoordinator, err), "is labgrid-coordinator running there? in the lab file, "+
			"coordinator: HOST[:PORT] names it, and proxy: HOST goes there through ssh")
	}

	return string(out), err
}

// command returns the command line for a labgrid-client command that needs nothing but the coordinator. It
// clears the user's environment variables that would add a place or an environment file.
func (c client) command(args ...string) host.Command {
	return host.Command{
		Path: program,
		Args: append(c.options(), args...),
		Env: append(c.identity(), "LG_ENV=", "LG_PLACE=", "PLACE=", "LG_STATE=", "STATE=",
			"LG_INITIAL_STATE=", "LG_TOKEN="),
		Bound: true,
	}
}

func (c client) options() (args []string) {
	if c.place.Coordinator != "" {
		args = append(args, "-x", c.place.Coordinator)
	}

	if c.place.Proxy != "" {
		args = append(args, "-P", c.place.Proxy)
	}

	return args
}

func (c client) identity() []string {
	machine, login, _ := strings.Cut(c.holder, "/")
	return []string{"LG_HOSTNAME=" + machine, "LG_USERNAME=" + login}
}

// Env returns the environment variables that other programs must pass to labgrid-client, so that
// labgrid-client finds the place and may use it.
func (h *Held) Env() []string {
	if h == nil {
		return nil
	}

	env := append(h.identity(), "LG_PLACE="+h.place.Name, "LG_ENV="+h.place.Config, "LG_STATE=",
		"LG_INITIAL_STATE=")
	if h.place.Coordinator != "" {
		env = append(env, "LG_COORDINATOR="+h.place.Coordinator)
	}

	if h.place.Proxy != "" {
		env = append(env, "LG_PROXY="+h.place.Proxy)
	}

	return env
}

// Command returns a command line that runs labgrid-client for the place. If image is not "", the environment
// variable LG_IMAGE contains the path of the image, for use in labgrid's environment file.
func (h *Held) Command(image string, words ...string) host.Command {
	env := h.Env()
	if image != "" {
		env = append(env, "LG_IMAGE="+image)
	}

	args := append(h.options(), "-p", h.place.Name)
	return host.Command{Path: program, Args: append(args, words...), Env: env, Bound: true}
}

// Before returns the labgrid-client commands that bring the board up. There may be none.
func (h *Held) Before() (commands [][]string) {
	if h.place.PowerBefore != "" {
		commands = append(commands, []string{"power", h.place.PowerBefore})
	}

	if h.place.State != "" {
		// A command that uses a driver first brings the board into this state.
		commands = append(commands, []string{"--state", h.place.State, "power", "get"})
	}

	return commands
}

// places returns all places of the coordinator.
func (c client) places(ctx context.Context) ([]place, error) {
	out, err := c.call(ctx, "-v", "places")
	return parsePlaces(out), err
}

func (c client) reservations(ctx context.Context) ([]reservation, error) {
	out, err := c.call(ctx, "reservations")
	return parseReservations(out), err
}

// filters returns the tags that the place must have.
func (c client) filters() []string {
	if c.place.Name != "" {
		return []string{"name=" + c.place.Name}
	}
	return c.place.Tags
}

// wanted describes the requested place for messages.
func (c client) wanted() string {
	if c.place.Name != "" {
		return "place " + c.place.Name
	}
	return "a place with " + strings.Join(c.place.Tags, " ")
}

// reserve reserves a place, and waits until the place is allocated. The lab file limits the time to wait.
func (h *Held) reserve(ctx context.Context) (r reservation, err error) {
	all, err := h.places(ctx)
	if err != nil {
		return r, err
	}

	var names []string
	matching := slices.DeleteFunc(slices.Clone(all), func(p place) bool { return !p.has(h.filters()) })
	for _, p := range all {
		names = append(names, p.name)
	}

	if len(matching) == 0 {
		err := fmt.Errorf("labgrid's coordinator at %s has not %s", h.coordinator(), h.wanted())
		return r, check.WithHint(err, check.Choice(h.place.Name, "places", names))
	}

	out, err := h.call(ctx, append([]string{"reserve"}, h.filters()...)...)
	if err != nil {
		return r, fmt.Errorf("reserve %s: %w", h.wanted(), err)
	}

	got := parseReservations(out)
	if len(got) != 1 || got[0].token == "" {
		return r, fmt.Errorf("reserve %s: %s printed %q", h.wanted(), program, check.Plain(out))
	}

	if got[0].place != "" {
		return got[0], nil
	}

	taken, err := h.taken(ctx, matching)
	if err != nil {
		return r, err
	}

	if h.place.Wait == 0 {
		return r, check.WithHint(fmt.Errorf("%s is taken: %s", h.wanted(), taken),
			"wait: 30m in the place of the lab file waits for it")
	}

	h.tell(fmt.Sprintf("waiting for %s, at most %s: %s", h.wanted(), unit.Duration(h.place.Wait), taken))
	r = got[0]
	r.place, err = h.await(ctx, r.token)
	return r, err
}

// taken describes who has acquired or reserved the places.
func (c client) taken(ctx context.Context, all []place) (string, error) {
	reserved, err := c.reservations(ctx)
	if err != nil {
		return "", err
	}

	var by []string
	for _, p := range all {
		i := slices.IndexFunc(reserved, func(r reservation) bool { return r.token == p.reservation })
		switch {
		case p.acquired != "":
			by = append(by, fmt.Sprintf("%s has acquired %s", p.acquired, p.name))
		case i >= 0:
			by = append(by, fmt.Sprintf("%s has reserved %s", reserved[i].owner, p.name))
		}
	}

	return check.Plain(cmp.Or(strings.Join(by, ", "), "others wait for it")), nil
}

// await waits until a reservation is allocated, and returns the place.
func (c client) await(ctx context.Context, token string) (name string, err error) {
	within, cancel := context.WithTimeoutCause(ctx, c.place.Wait,
		fmt.Errorf("%s is still taken after %s", c.wanted(), c.place.Wait))
	defer cancel()
	out, err := host.Run(within, c.host, c.command("wait", token))
	switch {
	case within.Err() != nil:
		return "", context.Cause(within)
	case err != nil:
		return "", fmt.Errorf("wait for %s: %w", c.wanted(), err)
	}

	for _, r := range parseReservations(string(out)) {
		name = r.place // the last one counts
	}

	if name == "" {
		err = fmt.Errorf("wait for %s: the reservation ended without a place", c.wanted())
	}

	return name, err
}

// Release runs the power command, releases the place, cancels the reservation, and records in the journal
// that it has done so. If labgrid fails, Release retries each step except the power command for half a
// minute. If a step still fails, the entry remains in the journal for a later restore. If other changes in
// the journal are not undone, such as settings on the machines of the place, Release keeps the place and
// returns an error. gone reports whether the place was no longer acquired, because somebody released it or
// the coordinator was restarted. Further calls do nothing.
func (h *Held) Release(ctx context.Context) (gone bool, err error) {
	if h == nil || h.released {
		return false, nil
	}

	h.released = true
	what := fmt.Sprintf("release %s, which %s holds", h.wanted(), h.holder)
	if h.journal.Open() > 1 {
		return false, check.WithHint(fmt.Errorf("%s: settings on its machines are not undone, so it stays "+
			"acquired", what), "once the machines can be reached, chokepoint lab restore undoes the "+
			"settings, and then releases it")
	}

	var names []string
	err = patiently(ctx, func(ctx context.Context) (err error) {
		names, err = h.acquiredPlaces(ctx)
		return err
	})
	if err == nil {
		h.powerAfter(ctx, names, h.tell)
		err = patiently(ctx, func(ctx context.Context) error {
			_, _, err := h.release(ctx, names)
			return err
		})
	}

	if err != nil {
		return false, check.WithHint(fmt.Errorf("%s: %w", what, err),
			"once the coordinator can be reached, chokepoint lab restore releases it")
	}

	return h.acquired && len(names) == 0, h.journal.Done(h.seq)
}

// patiently calls do until it succeeds or releaseTime has passed.
func patiently(ctx context.Context, do func(ctx context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	for {
		err := do(within)
		if err == nil || host.Pause(within, releasePause) != nil {
			return err
		}
	}
}

// Restore releases what the holder of a journal entry has acquired or reserved. It returns a description of
// what it has done.
func Restore(ctx context.Context, h host.Host, e journal.Entry) (text string, err error) {
	c := client{h, *e.Labgrid, e.Holder, powerTime}
	if _, err = c.check(ctx); err != nil {
		return "", fmt.Errorf("release %s, which %s holds: %w", c.wanted(), c.holder, err)
	}

	names, err := c.acquiredPlaces(ctx)
	if err != nil {
		return "", err
	}

	warnings := ""
	c.powerAfter(ctx, names, func(warning string) { warnings += "; " + warning })
	names, cancelled, err := c.release(ctx, names)
	switch {
	case len(names) > 0:
		text = "released place " + strings.Join(names, " and ") + warnings
	case cancelled > 0:
		text = "cancelled the reservation of " + c.wanted()
	case err == nil:
		text = "already released: " + c.wanted()
	}

	return text, err
}

// acquiredPlaces returns the names of the places that the holder has acquired.
func (c client) acquiredPlaces(ctx context.Context) (names []string, err error) {
	all, err := c.places(ctx)
	for _, p := range all {
		if p.acquired == c.holder {
			names = append(names, p.name)
		}
	}
	return names, err
}

// release releases places, and cancels the reservations of the holder. It returns the names of the places
// that it has released, and the number of reservations that it has cancelled. labgrid ignores the release of
// a place that the holder no longer has.
func (c client) release(ctx context.Context, places []string) (names []string, cancelled int, err error) {
	for _, name := range places {
		if _, failed := c.call(ctx, "-p", name, "release-from", c.holder); failed != nil {
			err = errors.Join(err, failed)
			continue
		}

		names = append(names, name)
	}

	reserved, failed := c.reservations(ctx)
	err = errors.Join(err, failed)
	for _, r := range reserved {
		if r.owner != c.holder {
			continue
		}

		if _, failed := c.call(ctx, "cancel-reservation", r.token); failed != nil {
			err = errors.Join(err, failed)
			continue
		}

		cancelled++
	}

	return names, cancelled, err
}

// powerAfter runs the power command, if any, for each place before the release. It tries only once for each
// place, because a place can be released even if its board cannot be switched off. If the command fails,
// powerAfter calls warn with the reason.
func (c client) powerAfter(ctx context.Context, places []string, warn func(string)) {
	if c.place.PowerAfter == "" {
		return
	}

	for _, name := range places {
		c.place.Name = name
		within, cancel := host.Within(ctx, c.powerTime)
		_, err := host.Run(within, c.host, (&Held{client: c}).Command("", "power", c.place.PowerAfter))
		cancel()
		if err != nil {
			text := err.Error()
			text = text[strings.LastIndexByte(text, '\n')+1:] // keep only the last line of a traceback
			warn(fmt.Sprintf("place %s: power %s: %s", name, c.place.PowerAfter, text))
		}
	}
}
