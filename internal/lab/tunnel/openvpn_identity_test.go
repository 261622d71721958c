package tunnel

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"
)

// TestIdentity reads the certificate and the key with another's program, over both forms of a length.
func TestIdentity(t *testing.T) {
	me, err := newIdentity()
	must(t, err)
	block, _ := pem.Decode(me.certificate)
	c, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	if err := c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature); err != nil {
		t.Errorf("its own signature: %v", err)
	}

	if c.Version != 3 || c.Subject.CommonName != "chokepoint" || c.Issuer.CommonName != "chokepoint" {
		t.Errorf("version %d of %s by %s", c.Version, c.Subject, c.Issuer)
	}

	if c.NotBefore.Unix() != 0 || c.NotAfter.Before(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("valid from %v to %v", c.NotBefore, c.NotAfter)
	}

	sum := sha256.Sum256(c.Raw)
	if me.fingerprint != spellFingerprint(sum[:]) {
		t.Errorf("fingerprint %s is not the certificate's", me.fingerprint)
	}

	block, _ = pem.Decode(me.key)
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	must(t, err)
	if !c.PublicKey.(ed25519.PublicKey).Equal(k.(ed25519.PrivateKey).Public()) {
		t.Error("the key is not the certificate's")
	}
}
