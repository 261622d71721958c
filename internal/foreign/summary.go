package foreign

import (
	"bytes"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/check"
)

// These match the headings of tables by ministat, and by benchstat before 2022 and since then.
var (
	ministatHead  = check.Pattern(`(?m)^\s*N\s+Min\s+Max\s+Median\s+Avg\s+Stddev\s*$`)
	ministatFile  = check.Pattern(`(?m)^[x+*%#@O] (\S.*)$`)
	benchstatHead = check.Pattern(`(?m)^name .*(?:time/op|speed|delta|alloc/op)|│.*\S/op|│.*vs base`)
)

// summary returns an error if the text is a summary by ministat or benchstat, because a summary contains no
// single values.
func summary(text []byte) error {
	text = text[:min(len(text), 64<<10)]
	switch {
	case ministatHead().Match(text):
		var files []string
		for _, m := range ministatFile().FindAllSubmatch(text, 20) {
			if len(bytes.Fields(m[1])) < 6 { // a row of the table has six figures
				files = append(files, name(string(m[1])))
			}
		}
		hint := strings.TrimSpace("import the files of numbers that it read " + strings.Join(files, ", "))
		return check.Hinted(hint, "it is a summary of ministat, which has no single values")
	case benchstatHead().Match(text) && bytes.Contains(text, []byte("±")):
		return check.Hinted(
			"import what iperf3, flent or another program wrote of each test, or columns of numbers",
			"it is a summary of benchstat, which has no single values")
	}
	return nil
}
