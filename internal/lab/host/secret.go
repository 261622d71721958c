package host

import (
	"crypto/rand"
	"log/slog"
)

// Secret is a key or code that must never be printed, logged or stored.
// Every printing path redacts it; it crosses to a node only by
// SecretSession, and is read only inside Use. The zero value is "no secret".
type Secret struct{ bytes []byte }

const redacted = "[secret]"

// NewSecret draws n random bytes.
func NewSecret(n int) Secret {
	b := make([]byte, n)
	rand.Read(b) // never fails since Go 1.24
	return Secret{b}
}

// SecretFrom takes ownership of b.
func SecretFrom(b []byte) Secret { return Secret{b} }

// Empty reports whether there is no secret.
func (s Secret) Empty() bool { return len(s.bytes) == 0 }

// Use hands the bytes to f, which must not keep them.
func (s Secret) Use(f func(b []byte) error) error { return f(s.bytes) }

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
