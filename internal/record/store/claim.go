package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Claim is a name on a PostgreSQL server that one connection at a time can hold. Place is the server's URL.
type Claim struct {
	Place, Name string

	db   *sql.DB
	conn *sql.Conn
}

// claimTime is the timeout of Hold.
const claimTime = 20 * time.Second

// Hold takes the name, or checks that this claim still holds it. If the connection was lost, Hold takes the
// name again. It returns false if another connection holds the name.
func (c *Claim) Hold(ctx context.Context) (held bool, err error) {
	ctx, stop := context.WithTimeout(ctx, claimTime)
	defer stop()
	if c.conn != nil && c.conn.PingContext(ctx) == nil {
		return true, nil
	}

	if err = c.Close(); err == nil {
		c.db, err = connect(c.Place, modeWrite)
	}

	if err == nil {
		c.conn, err = c.db.Conn(ctx)
	}

	// Without keepalives, the server would hold the name for hours after the holder's machine lost power.
	for _, set := range []string{"SET tcp_keepalives_idle = 30", "SET tcp_keepalives_interval = 10",
		"SET tcp_keepalives_count = 3"} {
		if err == nil {
			_, err = c.conn.ExecContext(ctx, set)
		}
	}

	if err == nil {
		err = c.conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))",
			"chokepoint "+c.Name).Scan(&held)
	}

	if err != nil {
		err = fmt.Errorf("claim %s in %s: %w", c.Name, Shown(c.Place), advise(err))
	}

	if !held {
		_ = c.Close() // the next Hold connects again
	}

	return held, err
}

// Close releases the name.
func (c *Claim) Close() (err error) {
	if c.conn != nil {
		if err = c.conn.Close(); errors.Is(err, sql.ErrConnDone) {
			err = nil
		}
	}

	if c.db != nil {
		err = errors.Join(err, c.db.Close())
	}

	c.conn, c.db = nil, nil
	return err
}
