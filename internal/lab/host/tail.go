package host

// Tail keeps the end of a text. It is not safe for concurrent use.
type Tail struct{ b []byte }

// Add appends to the text and keeps its last keep bytes.
func (t *Tail) Add(b []byte, keep int) {
	b = b[max(0, len(b)-keep):]
	stays := t.b[max(0, len(t.b)+len(b)-keep):]
	t.b = append(append(make([]byte, 0, len(stays)+len(b)), stays...), b...)
}

// Bytes returns the end of the text.
func (t *Tail) Bytes() []byte { return t.b }
