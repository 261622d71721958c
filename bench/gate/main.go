// Program gate reads go test -json on standard input and prints how many tests passed, failed and skipped.
// The log goes to standard error, that of failed tests last. The program fails if a test failed, if none ran,
// if a skip is not listed, or if more than five tests skipped because this machine's CPUs were stalled.
//
//	go test -json ./... | gate [-logs] ALLOWED…
//
// A line of a file ALLOWED is "package | test | reason | comment".
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
)

// maxStalled bounds the tests that skip because a vCPU stalled.
const maxStalled = 5

// event is one line of go test -json (go doc cmd/test2json).
type event struct{ Action, Package, Test, Output string }

func (e event) name() string { return strings.TrimSpace(e.Package + " " + e.Test) }

// allowance is one line of a list of allowed skips.
type allowance struct {
	test   *regexp.Regexp // matches the end of the import path and the whole name of the test
	reason string         // prefix of the text after "skip: "
}

func readAllowed(text string) (list []allowance, err error) {
	for line := range strings.Lines(text) {
		fields := strings.Split(line, "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}

		if fields[0] == "" && len(fields) == 1 || strings.HasPrefix(line, "#") {
			continue
		}

		if len(fields) != 4 || slices.Contains(fields, "") {
			return nil, fmt.Errorf("want package | test | reason | comment: %q", line)
		}

		test, err := regexp.Compile("(^|/)(" + fields[0] + ") (" + fields[1] + ")$")
		if err != nil {
			return nil, err
		}

		list = append(list, allowance{test, fields[2]})
	}
	return list, nil
}

// outcome counts tests, subtests included, and failed packages.
type outcome struct {
	passed, failed, skipped, stalled int
	failures                         strings.Builder // failures with their logs
}

func (o *outcome) fail(log, format string, args ...any) {
	o.failed++
	fmt.Fprintf(&o.failures, "%sfail: %s\n", log, fmt.Sprintf(format, args...))
}

// skip counts a skipped test with its log.
func (o *outcome) skip(e event, log string, allowed []allowance, out io.Writer) {
	_, reason, _ := strings.Cut(log, "skip: ")
	reason, _, _ = strings.Cut(reason, "\n")
	listed := slices.ContainsFunc(allowed, func(a allowance) bool {
		return a.test.MatchString(e.name()) && strings.HasPrefix(reason, a.reason)
	})
	if !listed {
		o.fail(log, "%s was skipped (%q), which no line of .ci/allowed-skips covers", e.name(), reason)
		return
	}

	o.skipped++
	if strings.HasPrefix(reason, "a vCPU was stalled") {
		o.stalled++
	}

	fmt.Fprintf(out, "note: skip: %s\t%s\n", reason, e.name())
}

// check reads events. It copies to out what go prints, and with logs also what the tests log.
func check(in io.Reader, allowed []allowance, logs bool, out io.Writer) (*outcome, error) {
	o := &outcome{}
	output := map[string]string{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text())
			continue
		}

		switch {
		case e.Action == "build-output":
			fmt.Fprint(out, e.Output)
		case e.Action == "output":
			output[e.name()] += e.Output
			if logs || e.Test == "" {
				fmt.Fprint(out, strings.TrimLeft(e.Output, " "))
			}
		case e.Action == "fail":
			o.fail(output[e.name()], "%s", e.name())
		case e.Action == "pass" && e.Test != "":
			o.passed++
		case e.Action == "skip" && e.Test != "":
			o.skip(e, output[e.name()], allowed, out)
		}
	}

	if o.stalled > maxStalled {
		o.fail("", "%d tests were skipped because a vCPU was stalled, max %d", o.stalled, maxStalled)
	}

	if o.passed+o.failed == 0 {
		o.fail("", "no test ran")
	}

	return o, lines.Err()
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("fail: ")
	logs := flag.Bool("logs", false, "print what the tests log")
	flag.Parse()
	var lists strings.Builder
	for _, name := range flag.Args() {
		text, err := os.ReadFile(name)
		if err != nil {
			log.Fatal(err)
		}

		lists.Write(text)
	}

	allowed, err := readAllowed(lists.String())
	if err != nil {
		log.Fatal(err)
	}

	o, err := check(os.Stdin, allowed, *logs, os.Stderr)
	fmt.Println(o.passed, o.failed, o.skipped)
	fmt.Fprint(os.Stderr, o.failures.String())
	if err != nil {
		log.Fatal(err)
	}

	if o.failed > 0 {
		os.Exit(1)
	}
}
