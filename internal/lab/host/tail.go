package host

// Tail keeps the end of a stream. It is not safe for concurrent use.
type Tail struct{ b []byte }

// Add appends b, and then drops bytes from the start until no more than keep bytes remain.
func (t *Tail) Add(b []byte, keep int) {
	b = b[max(0, len(b)-keep):]
	stays := t.b[max(0, len(t.b)+len(b)-keep):]
	t.b = append(append(make([]byte, 0, len(stays)+len(b)), stays...), b...)
}

// Bytes returns the bytes kept.
func (t *Tail) Bytes() []byte { return t.b }
