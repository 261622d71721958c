package ssh

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// begins is a line before the output of commands, if the login shell prints something of its own, from a
// .bashrc that does not check for an interactive shell.
const begins = "chokepoint-begins"

// marked returns a command line that prints that line first if necessary.
func (c *Connection) marked(line string) string {
	if !c.prints {
		return line
	}
	return "echo; echo " + begins + "; " + line
}

// own returns a command's output, without that of the login shell.
func (c *Connection) own(r io.Reader) io.Reader {
	if !c.prints {
		return r
	}
	return &afterBegin{from: bufio.NewReader(r)}
}

// afterBegin reads what follows the line. It skips at most maxHello before that.
type afterBegin struct {
	from    *bufio.Reader
	begun   bool
	skipped int
}

func (a *afterBegin) Read(p []byte) (int, error) {
	for !a.begun {
		line, err := a.from.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return 0, err
		}

		a.begun = strings.TrimSpace(string(line)) == begins
		if a.skipped += len(line); a.skipped > maxHello {
			return 0, errors.New("its login shell prints more than any should")
		}
	}
	return a.from.Read(p)
}

// session is a command started by Open.
type session struct {
	*host.Child
	of  *Connection
	out io.Reader
}

func (s session) Read(p []byte) (int, error) {
	n, err := s.out.Read(p)
	if err != nil {
		err = cmp.Or(s.of.flood(), err)
	}
	return n, err
}
