package ciphers

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"

	"golang.org/x/crypto/blake2b"
	"golang.org/x/crypto/blake2s"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// besideBytes is the length of an AEAD's additional data: 13 bytes, as in a TLS record and in openssl
// speed -aead.
const besideBytes = 13

// filler returns data for keys and input. The values of the data do not affect the speed of a cipher.
func filler(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + i>>8)
	}
	return b
}

// padded returns the length of a block after CBC's padding to whole AES blocks, which adds at least one
// byte (RFC 5652 section 6.3). OpenSSL's EVP pads in the same way.
func padded(n int) int { return n + aes.BlockSize - n%aes.BlockSize }

func keyBytes(algorithm string) int {
	if algorithm == "aes-128-cbc" || algorithm == "aes-128-gcm" {
		return 16
	}
	return 32
}

// goWorker returns a worker that uses Go's libraries.
func goWorker(q Request) (worker, error) {
	key := filler(keyBytes(q.Algorithm))
	data := filler(q.Block)
	switch q.Algorithm {
	case "aes-128-cbc", "aes-256-cbc":
		return goCBC(q, key)
	case "aes-128-gcm", "aes-256-gcm":
		b, err := aes.NewCipher(key)
		if err != nil {
			return worker{}, err
		}

		a, err := cipher.NewGCM(b)
		if err != nil {
			return worker{}, err
		}

		return goAEAD(q, a, data)
	case "chacha20-poly1305":
		a, err := chacha20poly1305.New(key)
		if err != nil {
			return worker{}, err
		}
		return goAEAD(q, a, data)
	case "sha1":
		return hashing(func() []byte { s := sha1.Sum(data); return s[:] }), nil
	case "sha256":
		return hashing(func() []byte { s := sha256.Sum256(data); return s[:] }), nil
	case "sha512":
		return hashing(func() []byte { s := sha512.Sum512(data); return s[:] }), nil
	case "blake2s256":
		return hashing(func() []byte { s := blake2s.Sum256(data); return s[:] }), nil
	case "blake2b512":
		return hashing(func() []byte { s := blake2b.Sum512(data); return s[:] }), nil
	case "x25519":
		own, err := ecdh.X25519().NewPrivateKey(key)
		if err != nil {
			return worker{}, err
		}
		return worker{do: func() error { _, err := own.ECDH(own.PublicKey()); return err }}, nil
	case "ed25519":
		return goSignature(q, ed25519.NewKeyFromSeed(key))
	}

	return worker{}, fmt.Errorf("%w: Go's libraries have it not", host.ErrUnsupported)
}

func hashing(sum func() []byte) worker {
	var last []byte
	return worker{do: func() error { last = sum(); return nil }, result: func() []byte { return last }}
}

func goCBC(q Request, key []byte) (worker, error) {
	b, err := aes.NewCipher(key)
	if err != nil {
		return worker{}, err
	}

	from := filler(padded(q.Block))
	to := make([]byte, padded(q.Block))
	iv := filler(aes.BlockSize)
	do := func() error { cipher.NewCBCEncrypter(b, iv).CryptBlocks(to, from); return nil }
	if q.Operation == "decrypt" {
		do = func() error { cipher.NewCBCDecrypter(b, iv).CryptBlocks(to, from); return nil }
	}

	return worker{do: do, result: func() []byte { return to }}, nil
}

// goAEAD returns a worker that seals or opens the same packet repeatedly.
func goAEAD(q Request, a cipher.AEAD, data []byte) (worker, error) {
	nonce := filler(a.NonceSize())
	beside := filler(besideBytes)
	to := make([]byte, 0, len(data)+a.Overhead())
	do := func() error { to = a.Seal(to[:0], nonce, data, beside); return nil }
	if q.Operation == "decrypt" {
		sealed := a.Seal(nil, nonce, data, beside)
		do = func() (err error) { to, err = a.Open(to[:0], nonce, sealed, beside); return err }
	}

	return worker{do: do, result: func() []byte { return to }}, nil
}

func goSignature(q Request, own ed25519.PrivateKey) (worker, error) {
	message := filler(32)
	signed := ed25519.Sign(own, message)
	if q.Operation == "sign" {
		return worker{
			do:     func() error { signed = ed25519.Sign(own, message); return nil },
			result: func() []byte { return bytes.Clone(signed) },
		}, nil
	}

	public := own.Public().(ed25519.PublicKey)
	return worker{do: func() error {
		if !ed25519.Verify(public, message, signed) {
			return errors.New("a signature of its own is refused")
		}
		return nil
	}}, nil
}
