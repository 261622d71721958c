package main

import (
	"bufio"
	"encoding/json"
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
	pkg    string // ends the import path
	test   *regexp.Regexp
	reason string // begins the text after "skip: "
}

// readAllowances parses "package | test | reason | why that is all right".
func readAllowances(r io.Reader) ([]allowance, error) {
	var list []allowance
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "|")
		if len(fields) != 4 {
			return nil, fmt.Errorf("parse allowed skips line %d: want package | test | reason | why", n)
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		test, err := regexp.Compile("^(?:" + fields[1] + ")$")
		if err != nil || fields[0] == "" || fields[2] == "" || fields[3] == "" {
			return nil, fmt.Errorf("parse allowed skips line %d: empty field or bad pattern %q", n, fields[1])
		}
		list = append(list, allowance{fields[0], test, fields[2]})
	}
	return list, lines.Err()
}

func (a allowance) covers(pkg, test, reason string) bool {
	return strings.HasSuffix("/"+pkg, "/"+a.pkg) && a.test.MatchString(test) && strings.HasPrefix(reason,
		a.reason)
}

// outcome is what a run of go test came to.
type outcome struct {
	passed, failed, skipped int
	faults                  faults
	open                    map[string]bool // packages and tests that began and did not end
}

var skipReason = regexp.MustCompile(`(?m)skip: (.*)$`)

// judge reads a stream of test events. Sub-tests count like tests; a package that fails without a failing
// test, such as one that does not build, counts once.
func judge(in io.Reader, allowed []allowance, talk io.Writer) (outcome, error) {
	o := outcome{open: map[string]bool{}}
	output := map[string]string{}
	failedIn := map[string]bool{}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e testEvent
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(talk, "%s", line) // the go command's own words
				continue
			}
			o.take(e, allowed, output, failedIn, talk)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return o, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.open)) {
		o.failed++
		o.faults.add("%s did not end", name)
	}
	if o.passed+o.failed == 0 {
		o.faults.add("no test was run")
	}
	return o, nil
}

func (o *outcome) take(e testEvent, allowed []allowance, output map[string]string, failedIn map[string]bool,
	talk io.Writer) {
	key := e.Package + " " + e.Test
	o.follow(e)
	switch {
	case e.Action == "output" || e.Action == "build-output":
		output[key] += e.Output
		if e.Action == "build-output" {
			fmt.Fprint(talk, e.Output)
		}
	case e.Action == "pass" && e.Test != "":
		o.passed++
	case e.Action == "fail" && (e.Test != "" || !failedIn[e.Package]):
		o.failed++
		failedIn[e.Package] = true
		o.faults.add("%s failed", strings.TrimSpace(key))
		fmt.Fprintf(talk, "%s\n%s", strings.TrimSpace(key), output[key])
	case e.Action == "skip" && e.Test != "":
		o.skip(e, output[key], allowed, talk)
	case e.Action == "pass" || e.Action == "skip":
		fmt.Fprintf(talk, "%s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
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

func (o *outcome) skip(e testEvent, output string, allowed []allowance, talk io.Writer) {
	reason := ""
	if m := skipReason.FindStringSubmatch(output); m != nil {
		reason = strings.TrimSpace(m[1])
	}
	for _, a := range allowed {
		if reason != "" && a.covers(e.Package, e.Test, reason) {
			o.skipped++
			fmt.Fprintf(talk, "note: skipped %s %s: %s\n", e.Package, e.Test, reason)
			return
		}
	}
	o.failed++
	o.faults.add("%s %s was skipped (%q), which .ci/allowed-skips does not list", e.Package, e.Test, reason)
}

func testsCommand(args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("tests", flag.ContinueOnError)
	allowedFile := flags.String("allowed", "", "list of skips that are all right")
	countsFile := flags.String("counts", "", "append \"passed failed skipped\" to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	f, err := os.Open(*allowedFile)
	if err != nil {
		return err
	}
	defer f.Close()
	allowed, err := readAllowances(f)
	if err != nil {
		return err
	}
	o, err := judge(in, allowed, out)
	if err != nil {
		return err
	}
	if *countsFile != "" {
		counts, err := os.OpenFile(*countsFile, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		fmt.Fprintln(counts, o.passed, o.failed, o.skipped)
		if err := counts.Close(); err != nil {
			return err
		}
	}
	return o.faults.err()
}
