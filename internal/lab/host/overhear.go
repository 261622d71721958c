package host

import (
	"bytes"
	"context"
	"io"
)

// Overhear wraps h so that the function keep is called with up to limit bytes of the standard output of each
// command. It also calls keep for each file that is read, as if cat had printed the file. whole reports
// whether printed is the complete output.
func Overhear(h Host, limit int, keep func(c Command, printed []byte, whole bool)) Host {
	return overheard{h, limit, keep}
}

type overheard struct {
	Host
	limit int
	keep  func(c Command, printed []byte, whole bool)
}

func (o overheard) ReadFile(ctx context.Context, path string) ([]byte, error) {
	b, err := o.Host.ReadFile(ctx, path)
	if err == nil {
		o.keep(Command{Path: "cat", Args: []string{path}}, b[:min(len(b), o.limit)], len(b) <= o.limit)
	}
	return b, err
}

func (o overheard) Start(ctx context.Context, c Command) (Process, error) {
	p, err := o.Host.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return &overheardProcess{Process: p, of: o, command: c}, nil
}

// overheardProcess records the standard output of a process while it is read. At most one goroutine may read
// it.
type overheardProcess struct {
	Process
	of      overheard
	command Command
	printed bytes.Buffer
	cut     bool
}

func (p *overheardProcess) Stdout() io.Reader { return io.TeeReader(p.Process.Stdout(), p) }

// Write appends b to the record, up to the limit.
func (p *overheardProcess) Write(b []byte) (int, error) {
	take := min(len(b), p.of.limit-p.printed.Len())
	p.cut = p.cut || take < len(b)
	p.printed.Write(b[:take])
	return len(b), nil
}

func (p *overheardProcess) Wait() (Usage, error) {
	u, err := p.Process.Wait()
	p.of.keep(p.command, p.printed.Bytes(), !p.cut)
	return u, err
}
