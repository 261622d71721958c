package oracle

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
)

// TestBenchstat: benchstat's own reader finds in what report writes for it every line of a trial, with the
// values and the configuration that are there.
func TestBenchstat(t *testing.T) {
	files, err := filepath.Glob("../../internal/report/testdata/*.benchstat")
	if err != nil || len(files) < 7 {
		t.Fatalf("got %d files, %v", len(files), err)
	}

	all := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		config := map[string]string{}
		var want, got []string
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			switch key, value, ok := strings.Cut(line, ": "); {
			case strings.HasPrefix(line, "Benchmark"):
				want = append(want, line)
			case ok && !strings.HasPrefix(line, "#"):
				config[key] = value
			}
		}

		r := benchfmt.NewReader(bytes.NewReader(text), file)
		for r.Scan() {
			switch found := r.Result().(type) {
			case *benchfmt.SyntaxError:
				t.Errorf("%s: %v", file, found)
			case *benchfmt.Result:
				line := "Benchmark" + string(found.Name) + " " + strconv.Itoa(found.Iters)
				for _, v := range found.Values {
					line += " " + strconv.FormatFloat(v.Value, 'g', -1, 64) + " " + v.Unit
				}

				got = append(got, line)
				for key, value := range config {
					is := found.GetConfig(key)
					if is != value {
						t.Errorf("%s: %s is %q, want %q", file, key, is, value)
					}
				}
			}
		}

		if r.Err() != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: benchstat reads %v\n%s\nwant\n%s", file, r.Err(), strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}

		by := config["measured-by"]
		if strings.Contains(file, "imported") && by != "iperf3 3.12" {
			t.Errorf("%s: measured by %q", file, by)
		}

		all += len(got)
	}

	if all < 100 {
		t.Errorf("benchstat reads only %d trials", all)
	}
}
