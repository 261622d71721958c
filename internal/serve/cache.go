package serve

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/analysis"
	"github.com/chokepoint-lab/chokepoint/internal/app"
)

// maxKept limits the total size of the cache in bytes. It leaves most of app.DocumentMemory free.
const maxKept = 16 << 20

// cache keeps content derived from runs. It drops the least recently used content first.
type cache struct {
	mu    sync.Mutex
	all   []kept
	bytes int
}

type kept struct {
	key     string
	content []byte
}

// get returns the content of a key, or nil if there is none.
func (c *cache) get(key string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.all, func(k kept) bool { return k.key == key })
	if i < 0 {
		return nil
	}

	found := c.all[i]
	c.all = append(slices.Delete(c.all, i, i+1), found)
	return found.content
}

// put adds the content of a key. The key must be new; this holds because only one request at a time calls
// put.
func (c *cache) put(key string, content []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, kept{key, content})
	c.bytes += len(content)
	for c.bytes > maxKept {
		c.bytes -= len(c.all[0].content)
		c.all = slices.Delete(c.all, 0, 1)
	}
}

// made returns what render makes of the document of a run. If the run has not changed, it returns the content
// of an earlier call.
func (s *Server) made(ctx context.Context, kind string, h app.Head,
	render func(*analysis.Document) ([]byte, error)) ([]byte, error) {
	key, err := s.keyOf(ctx, kind, h.ID)
	if err != nil {
		return nil, err
	}

	content := s.kept.get(key)
	if content != nil {
		return content, nil
	}

	err = s.alone(ctx, func() error {
		content, err = s.derived(ctx, kind, h.ID, render)
		return err
	})
	return content, err
}

// keyOf returns the key of content derived from the current state of a run.
func (s *Server) keyOf(ctx context.Context, kind, run string) (string, error) {
	revision, err := s.app.Dirs.Revision(ctx, run)
	return kind + " " + run + " " + revision, err
}

// derived is like made, but may be called only by a function that runs in alone.
func (s *Server) derived(ctx context.Context, kind, run string,
	render func(*analysis.Document) ([]byte, error)) ([]byte, error) {
	key, err := s.keyOf(ctx, kind, run)
	if err != nil {
		return nil, err
	}

	content := s.kept.get(key)
	if content != nil {
		return content, nil
	}

	doc, err := s.app.Dirs.Document(ctx, run)
	if err == nil {
		content, err = render(doc)
	}

	if err != nil {
		return nil, err
	}

	s.kept.put(key, content)
	return content, nil
}

// alone calls f while no other request derives documents, because this takes memory and a whole CPU. f also
// lays out the documents that it derives.
func (s *Server) alone(ctx context.Context, f func() error) error { return inTurn(ctx, s.turn, f) }

// few returns a function that calls f, but for only a few requests at once, because a list of all runs takes
// memory.
func (s *Server) few(f func(*http.Request) ([]byte, error)) func(*http.Request) ([]byte, error) {
	return func(r *http.Request) (content []byte, err error) {
		err = inTurn(r.Context(), s.lists, func() error {
			content, err = f(r)
			return err
		})
		return content, err
	}
}

// inTurn calls f as soon as turns has a free place. It returns an error if that takes too long.
func inTurn(ctx context.Context, turns chan struct{}, f func() error) error {
	patience := time.NewTimer(waitTime)
	defer patience.Stop()
	select {
	case turns <- struct{}{}:
		defer func() { <-turns }()
		return f()
	case <-patience.C:
		return errBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}
