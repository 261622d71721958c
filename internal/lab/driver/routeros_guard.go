package driver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// A guard on RouterOS consists of a script that undoes settings and two scheduler entries. The first entry
// runs the script if the guard has not been touched. The second runs it after a reboot, when entries with an
// interval do not run (manual, Scheduler). Touching a guard adds an address with a timeout to an address list
// that no rule uses. Such addresses exist only in memory and vanish on reboot (manual, Address lists), so
// touching neither depends on the router's clock nor writes to its flash.
const (
	guardPrefix = rosMark + "-guard-"
	guardBoot   = "-boot" // suffix of the second entry's name
	guardPolicy = "read,write,policy,test"
	guardEvery  = 5 * time.Second
	guardArmed  = "armed" // comment of an entry that has not run yet
	guardAgain  = time.Minute
)

const scheduler, scripts, lists = "/system/scheduler", "/system/script", "/ip/firewall/address-list"

// newGuard returns a name for a guard. The name contains random characters and the timeout in seconds.
func newGuard(silence time.Duration) string {
	var nonce [6]byte
	rand.Read(nonce[:]) // never returns an error
	return guardPrefix + hex.EncodeToString(nonce[:]) + "-" + seconds(silence)
}

// guardSilence returns the timeout in the name of a guard. ok is false if newGuard did not create the name.
func guardSilence(name string) (time.Duration, bool) {
	rest, ok := strings.CutPrefix(name, guardPrefix)
	nonce, silence, cut := strings.Cut(rest, "-")
	_, err := hex.DecodeString(nonce)
	n, wrong := strconv.ParseUint(strings.TrimSuffix(silence, "s"), 10, 31)
	ok = ok && cut && err == nil && wrong == nil && len(nonce) == 12 && n > 0
	return time.Duration(n) * time.Second, ok
}

// keepAddress returns a statement that adds a random address with a timeout to a list. It does not extend the
// timeout of an existing address, because such an address may not be changeable.
func keepAddress(list string, keep time.Duration) string {
	var b [3]byte
	rand.Read(b[:]) // never returns an error
	return fmt.Sprintf("%s/add list=%s address=240.%d.%d.%d timeout=%s", lists, quoteROS(list), b[0], b[1],
		b[2], seconds(keep))
}

// kept returns an expression for the number of addresses in a list.
func kept(list string) string { return "[:len " + find(lists, "list", list) + "]" }

// rosUndo returns the text of a guard's script, which applies settings in reverse order and continues after
// errors. The script removes the guard if all settings were applied; otherwise, the scheduler runs the script
// again later.
func rosUndo(ctx context.Context, h host.Host, name string, undo []record.Setting) (string, error) {
	entry := find(scheduler, "name", name)
	lines := []string{":local cpDone true", scheduler + "/set " + entry + " comment=undoing"}
	for _, s := range slices.Backward(undo) {
		w := &written{Host: h}
		if err := (RouterOS{}).Apply(ctx, w, s); err != nil {
			return "", fmt.Errorf("write down how %s is undone: %w", s.Knob, err)
		}

		lines = append(lines, ":do {"+strings.Join(w.statements, "; ")+"} on-error={:set cpDone false; "+
			":log error "+quoteROS(rosMark+": "+s.Knob+" could not be put back")+"}")
	}

	lines = append(lines, ":if ($cpDone) do={"+strings.Join(guardRemoval(name), "; ")+"} else={"+scheduler+
		"/set "+entry+" interval="+seconds(guardAgain)+"}")
	return strings.Join(lines, "\n"), nil
}

// guardRemoval returns the statements that remove a guard, beginning with its scheduler entries.
func guardRemoval(name string) []string {
	return []string{remove(scheduler, "name", name),
		remove(scheduler, "name", name+guardBoot),
		remove(lists, "list", name), remove(scripts, "name", name)}
}

// Guard implements Guarded. It returns after the scheduler has run the guard's entry and the router has the
// complete script.
func (RouterOS) Guard(ctx context.Context, h host.Host, name string, undo []record.Setting,
	silence time.Duration) (string, error) {
	isNew := name == ""
	err := error(nil)
	if isNew {
		if err = mayGuard(ctx, h); err != nil {
			return "", failed(h, "install the guard", err)
		}

		name = newGuard(silence)
		if err = otherGuards(ctx, h); err == nil {
			err = removeUnarmed(ctx, h)
		}
	} else {
		err = RouterOS{}.Touch(ctx, h, name)
	}

	var script string
	if err == nil {
		script, err = rosUndo(ctx, h, name, undo)
	}

	if err == nil && isNew {
		err = startGuard(ctx, h, name, script, silence)
	} else if err == nil {
		_, err = console(ctx, h, scripts+"/set "+find(scripts, "name", name)+" source="+quoteROS(script))
	}

	if err == nil {
		err = verifyGuard(ctx, h, name, script)
	}

	if err == nil {
		return name, nil
	}

	err = failed(h, "install the guard", err)
	if isNew { // dismiss it, because nothing has been changed yet
		err = errors.Join(err, (RouterOS{}).Dismiss(context.WithoutCancel(ctx), h, name))
		name = ""
	}

	return name, err
}

// Free implements Guarded.
func (RouterOS) Free(ctx context.Context, h host.Host, own ...string) error {
	return failed(h, "look for other controllers", otherGuards(ctx, h, own...))
}

// otherGuards returns an error if the router has an armed guard that is not listed in own.
func otherGuards(ctx context.Context, h host.Host, own ...string) error {
	armed, err := items(ctx, h, scheduler+"/print as-value")
	if err != nil {
		return err
	}

	for _, i := range armed {
		if strings.HasPrefix(i["name"], guardPrefix) &&
			!slices.Contains(own, strings.TrimSuffix(i["name"], guardBoot)) {
			return check.WithHint(fmt.Errorf("another controller has set something here: its guard is %s "+
				"in %s", check.Plain(i["name"]), scheduler), othersHint)
		}
	}

	return nil
}

// removeUnarmed removes the scripts of guards that were never armed.
func removeUnarmed(ctx context.Context, h host.Host) error {
	left, err := items(ctx, h, scripts+"/print as-value")
	var statements []string
	for _, i := range left {
		_, ours := guardSilence(i["name"])
		if ours {
			statements = append(statements, remove(scripts, "name", i["name"]))
		}
	}

	if err == nil && len(statements) > 0 {
		_, err = console(ctx, h, statements...)
	}

	return err
}

func startGuard(ctx context.Context, h host.Host, name, script string, silence time.Duration) error {
	run := scripts + "/run " + quoteROS(name)
	look := ":if (" + kept(name) + " = 0) do={" + run + "}"
	// Try repeatedly, because interfaces may appear some time after boot. The script's own retries serve this
	// purpose, too.
	boot := ":for cpTry from=1 to=12 do={:delay 5s; :if ([:len " + find(scripts, "name", name) + "] > 0) " +
		"do={" + run + "}}"
	entry := scheduler + "/add policy=" + guardPolicy + " name="
	_, err := console(ctx, h,
		scripts+"/add name="+quoteROS(name)+" policy="+guardPolicy+" source="+quoteROS(script),
		keepAddress(name, silence),
		entry+quoteROS(name)+" comment="+guardArmed+" interval="+seconds(guardEvery)+" on-event="+
			quoteROS(look),
		entry+quoteROS(name+guardBoot)+" start-time=startup interval=0s on-event="+quoteROS(boot))
	return err
}

// verifyGuard compares the script on the router with ours, and waits until the scheduler has run the guard's
// entry.
func verifyGuard(ctx context.Context, h host.Host, name, script string) error {
	held, err := first(ctx, h, scripts+"/print detail as-value where name="+quoteROS(name))
	if err != nil {
		return err
	}

	if strings.ReplaceAll(held["source"], "\r", "") != script {
		return errors.New("the router holds another script than it was given")
	}

	for range 20 {
		armed, err := items(ctx, h, scheduler+"/print detail as-value where name="+quoteROS(name))
		if err != nil {
			return err
		}

		if len(armed) != 1 || armed[0].yes("disabled") || armed[0]["comment"] != guardArmed {
			return errNoGuard
		}

		runs, known := armed[0].number("run-count")
		if known && runs > 0 {
			return RouterOS{}.Touch(ctx, h, name)
		}

		if err := host.Pause(ctx, time.Second); err != nil {
			return err
		}
	}

	return check.WithHint(fmt.Errorf("the scheduler has not run its entry %s", name),
		"/system/device-mode/print: is scheduler allowed?")
}

// Touch implements Guarded.
func (RouterOS) Touch(ctx context.Context, h host.Host, name string) error {
	silence, ours := guardSilence(name)
	err := fmt.Errorf("%q is none", name)
	if ours {
		_, err = console(ctx, h, ":if ([:len "+find(scheduler, "name", name, "comment", guardArmed)+"] = 0) "+
			"do={:error "+quoteROS("no guard "+name)+"}", keepAddress(name, silence))
	}

	return untouched(h, err)
}

// Dismiss implements Guarded.
func (RouterOS) Dismiss(ctx context.Context, h host.Host, name string) error {
	err := fmt.Errorf("%q is none", name)
	_, ours := guardSilence(name)
	if ours {
		_, err = console(ctx, h, guardRemoval(name)...)
	}

	return failed(h, "dismiss the guard", err)
}
