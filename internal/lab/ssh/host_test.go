package ssh

import (
	"errors"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// TestCommandLine: a command comes through the login shell as it is, whichever that is. csh is root's on
// OPNsense, whose menu hands commands to it.
func TestCommandLine(t *testing.T) {
	script := "for a; do printf '<%s>\\n' \"$a\"; done\n[ ! -e /none ] && echo yes!there\ncat"
	args := []string{"it's", "a\nb", `\n \0047 %s`, `$HOME ~ * {a,b} "q" ` + "`id`", "", "!!", "ěš\t",
		"trailing\n"}
	quoted := func(words ...string) string {
		for i, w := range words {
			words[i] = host.Quote(w)
		}
		return commandLine(append([]string{"exec"}, words...))
	}
	plain := args[3] // of which nothing is written otherwise
	for _, tt := range []struct{ line, want string }{
		{quoted(append([]string{"sh", "-c", script, "sh"}, args...)...),
			"<" + strings.Join(args, ">\n<") + ">\nyes!there\ninput!\n"},
		{quoted("printf", "<%s>", plain), "<" + plain + ">"},
	} {
		for _, shell := range [][]string{{"sh"}, {"tcsh", "-f"}} {
			out, err := host.Run(t.Context(), host.Local(), host.Command{
				Path:  shell[0],
				Args:  append(shell[1:], "-c", tt.line),
				Stdin: strings.NewReader("input!\n"),
			})
			if errors.Is(err, host.ErrUnsupported) {
				t.Skip("skip: no tcsh here")
			}

			if err != nil || string(out) != tt.want {
				t.Errorf("%s -c %s: got %q, %v, want %q", shell[0], tt.line, out, err, tt.want)
			}
		}
	}
}
