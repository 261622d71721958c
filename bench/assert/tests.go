package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// testEvent is a line of go test -json (cmd/test2json).
type testEvent struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// allowance is a line of .ci/allowed-skips.
type allowance struct {
	pkg    string // ends the import path; with "/..." also of those below
	test   *regexp.Regexp
	reason string // begins the text after "skip: "
}

// readAllowances parses lines of "package | test | reason | why that is all right", no field empty.
func readAllowances(r io.Reader) (list []allowance, err error) {
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(line, "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if len(row) != 4 || slices.Contains(row, "") {
			return nil, fmt.Errorf("parse line %d: want 4 fields, none of them empty: %q", n, line)
		}
		test, err := regexp.Compile("^(?:" + row[1] + ")$")
		if err != nil {
			return nil, fmt.Errorf("parse line %d: bad pattern %q", n, row[1])
		}
		list = append(list, allowance{row[0], test, row[2]})
	}
	return list, lines.Err()
}

func (a allowance) covers(pkg, test, reason string) bool {
	below, wild := strings.CutSuffix(a.pkg, "/...")
	named := strings.HasSuffix("/"+pkg, "/"+below) || wild && strings.Contains("/"+pkg+"/", "/"+below+"/")
	return named && a.test.MatchString(test) && strings.HasPrefix(reason, a.reason)
}

// outcome is what a run of go test came to.
type outcome struct {
	passed, failed, skipped int
	faults                  faults
	open                    map[string]bool // packages and tests that began and did not end
	skips                   []skippedTest
	took                    []tookTest // top-level tests that took long

	allowed  []allowance
	output   map[string]string // of each package and test
	failedIn map[string]bool   // packages with a test that failed
	talk     io.Writer
}

// tookTest is a top-level test with the seconds it took, waiting for others included.
type tookTest struct {
	name    string
	seconds float64
}

// maxStalled bounds the tests of a stage that skip because a vCPU was stalled too often in their trials.
const maxStalled = 5

// slowest is how many of the slowest tests are named.
const slowest = 12

// slow names the slowest tests, so that one sees where a stage's time goes.
func (o *outcome) slow() string {
	slices.SortStableFunc(o.took, func(a, b tookTest) int { return cmp.Compare(b.seconds, a.seconds) })
	var words []string
	for _, t := range o.took[:min(slowest, len(o.took))] {
		words = append(words, fmt.Sprintf("%s %.0f s", t.name, t.seconds))
	}
	return strings.Join(words, ", ")
}

// skippedTest is one that an allowance covers.
type skippedTest struct{ pkg, test, reason string }

var skipReason = regexp.MustCompile(`(?m)skip: (.*)$`)

// judge reads a stream of test events, and passes on what the tests log if that is wanted. Sub-tests count
// like tests; a package that fails without a failing test, such as one that does not build, counts once.
func judge(in io.Reader, allowed []allowance, logs bool, talk io.Writer) (outcome, error) {
	o := outcome{open: map[string]bool{}, allowed: allowed, output: map[string]string{},
		failedIn: map[string]bool{}, talk: talk}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e testEvent
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(talk, lines.Text()) // the go command's own words
			continue
		}
		o.take(e)
		if logs && e.Action == "output" {
			fmt.Fprint(talk, strings.TrimLeft(e.Output, " "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.open)) {
		o.fail("%s did not end", name)
	}
	if o.passed+o.failed == 0 {
		o.faults.add("no test was run")
	}
	stalled := 0
	for _, s := range o.skips {
		if strings.HasPrefix(s.reason, "a vCPU was stalled") {
			stalled++
		}
	}
	if stalled > maxStalled {
		o.fail("%d tests were skipped because a vCPU was stalled, at most %d may be: run them on another "+
			"machine", stalled, maxStalled)
	}
	return o, lines.Err()
}

// fail counts a failure, which is a fault.
func (o *outcome) fail(format string, args ...any) {
	o.failed++
	o.faults.add(format, args...)
}

func (o *outcome) take(e testEvent) {
	key := e.Package + " " + e.Test
	o.follow(e)
	switch {
	case e.Action == "output" || e.Action == "build-output":
		o.output[key] += e.Output
		if e.Action == "build-output" {
			fmt.Fprint(o.talk, e.Output)
		}
	case e.Action == "pass" && e.Test != "":
		o.passed++
		if !strings.Contains(e.Test, "/") && e.Elapsed >= 1 {
			name := "." + strings.TrimPrefix(e.Package, module) + " " + e.Test
			o.took = append(o.took, tookTest{name, e.Elapsed})
		}
	case e.Action == "fail" && (e.Test != "" || !o.failedIn[e.Package]):
		o.failedIn[e.Package] = true
		o.fail("%s failed", strings.TrimSpace(key))
		fmt.Fprintf(o.talk, "%s\n%s", strings.TrimSpace(key), o.output[key])
	case e.Action == "skip" && e.Test != "":
		o.skip(e)
	case e.Action == "pass" || e.Action == "skip":
		fmt.Fprintf(o.talk, "%s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
	}
}

// follow notes what has begun and what has ended: a stream that breaks off has no failure in it. Words of
// the build belong to no package.
func (o *outcome) follow(e testEvent) {
	if e.Package == "" {
		return
	}
	name := strings.TrimSpace(e.Package + " " + e.Test)
	switch e.Action {
	case "pass", "fail", "skip":
		delete(o.open, name)
		if e.Test != "" {
			o.open[e.Package] = true
		}
	case "run", "start":
		o.open[name] = true
	default:
		o.open[e.Package] = true
	}
}

func (o *outcome) skip(e testEvent) {
	reason := ""
	if m := skipReason.FindStringSubmatch(o.output[e.Package+" "+e.Test]); m != nil {
		reason = strings.TrimSpace(m[1])
	}
	covers := func(a allowance) bool { return reason != "" && a.covers(e.Package, e.Test, reason) }
	if !slices.ContainsFunc(o.allowed, covers) {
		o.fail("%s %s was skipped (%q), which .ci/allowed-skips does not list", e.Package, e.Test, reason)
		return
	}
	o.skipped++
	o.skips = append(o.skips, skippedTest{e.Package, e.Test, reason})
	fmt.Fprintf(o.talk, "note: skipped %s %s: %s\n", e.Package, e.Test, reason)
}

// module is the import path of the project.
const module = "github.com/chokepoint-lab/chokepoint"

func testsCommand(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("tests", flag.ContinueOnError)
	allowedFile := flags.String("allowed", "", "list of skips that are all right")
	logs := flags.Bool("logs", false, "print what the tests log, also those that pass")
	countsFile := flags.String("counts", "", "append \"passed failed skipped\" to this file")
	skippedFile := flags.String("skipped", "",
		"append \"reason, tab, test\" of the skipped ones to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	allowed, err := readAllowed(*allowedFile)
	if err != nil {
		return err
	}
	o, err := judge(in, allowed, *logs, out)
	if err != nil {
		return err
	}
	var skipped strings.Builder
	for _, s := range o.skips {
		fmt.Fprintf(&skipped, "%s\t%s %s\n", s.reason, s.pkg, s.test)
	}
	if len(o.took) > 0 {
		fmt.Fprintf(out, "note: slowest: %s\n", o.slow())
	}
	return errors.Join(appendTo(*countsFile, fmt.Sprintln(o.passed, o.failed, o.skipped)),
		appendTo(*skippedFile, skipped.String()), o.faults.err())
}

// appendTo adds text to a file that is made if need be; without a name there is none.
func appendTo(name, text string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func readAllowed(name string) ([]allowance, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := readAllowances(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}
