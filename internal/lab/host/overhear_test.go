package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chokepoint-lab/chokepoint/internal/labtest/expect"
)

// TestOverhear: what commands print is heard, up to a bound, and comes to whoever ran them whole; what is
// written is not heard.
func TestOverhear(t *testing.T) {
	var heard []string
	h := Overhear(Local(), 4, func(c Command, printed []byte, whole bool) {
		heard = append(heard, fmt.Sprintf("%s %s: %q %t", c.Path, strings.Join(c.Args, " "), printed, whole))
	})
	run := func(script string) string {
		out, _ := Run(t.Context(), h, Command{Path: "sh", Args: []string{"-c", script}})
		return string(out)
	}
	path := filepath.Join(t.TempDir(), "f")
	must(t, h.WriteFile(t.Context(), path, []byte("secret")))
	file, err := h.ReadFile(t.Context(), path)
	must(t, err)
	if _, err := h.ReadFile(t.Context(), path+"x"); !os.IsNotExist(err) {
		t.Errorf("got %v, want that it is not there", err)
	}

	got := []string{run("echo 123"), run("printf 12345"), run("echo no >&2; exit 3"), string(file)}
	expect.Same(t, "printed", got, []string{"123\n", "12345", "", "secret"})
	expect.Same(t, "heard", heard, []string{"cat " + path + `: "secr" false`, `sh -c echo 123: "123\n" true`,
		`sh -c printf 12345: "1234" false`, `sh -c echo no >&2; exit 3: "" true`})
}
