package main

import (
	"fmt"
	"os"

	"github.com/chokepoint-lab/chokepoint/internal/progress"
)

// sink is where a run's events are shown: as JSON lines with the result, as a live view on a terminal, else
// as plain lines. Only one is ever in use, so that one writer owns the terminal.
func (s streams) sink(asJSON bool) progress.Sink {
	if asJSON {
		return progress.JSON(s.Out)
	}
	if f, ok := s.Err.(*os.File); ok && s.ErrTTY {
		return progress.Live(f)
	}
	return progress.Plain(s.Err)
}

// note says something that is worth knowing and no error, on its own line.
func (s streams) note(format string, args ...any) {
	// talk that is lost changes no result
	_, _ = fmt.Fprintf(s.Err, "chokepoint: note: "+format+"\n", args...)
}
