package ssh

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// begins is a marker line that precedes a command's output. It is needed if the login shell prints text
// first, for example because its .bashrc does not check whether the shell is interactive.
const begins = "chokepoint-begins"

// marked returns a command line that runs line. If necessary, the command line first prints the marker line
// (begins).
func (c *Connection) marked(line string) string {
	if !c.prints {
		return line
	}
	return "echo; echo " + begins + "; " + line
}

// own returns a reader for the output of a command. The reader skips the text printed by the login shell.
func (c *Connection) own(r io.Reader) io.Reader {
	if !c.prints {
		return r
	}
	return &afterBegin{from: bufio.NewReader(r)}
}

// afterBegin is a reader that skips everything up to and including the marker line (begins). It fails if more
// than maxHello bytes precede that line.
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
