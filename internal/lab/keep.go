package lab

import (
	"context"
	"fmt"

	"github.com/chokepoint-lab/chokepoint/internal/record"
)

// Keep applies settings permanently and reads them back. It does not journal them, and nothing undoes them.
// If a setting fails, the error lists the settings applied before it, which remain in effect.
func (l *Lab) Keep(ctx context.Context, settings []record.Setting) error {
	for i, s := range settings {
		n, err := l.Node(ctx, s.Node)
		if err != nil {
			return err
		}

		x, err := l.resolve(s, n)
		if err == nil && n.Facts.Fixed != "" {
			err = fmt.Errorf("%s", n.Facts.Fixed)
		}

		if err == nil {
			err = x.keep(ctx)
		}

		if err != nil {
			err = fmt.Errorf("keep %s=%s on %s: %w", s.Knob, s.Value, place(s), err)
			if i > 0 {
				err = fmt.Errorf("%w (kept before it%s)", err, wordsOf(settings[:i]))
			}
			return err
		}
	}
	return nil
}
