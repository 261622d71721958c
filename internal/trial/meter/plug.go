package meter

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// plug accesses a smart plug with an HTTP interface.
type plug struct {
	spec     spec
	password host.Secret
	client   *http.Client
	gen      int // generation of a Shelly; 0 means unknown
}

func newPlug(s spec, password host.Secret) *plug {
	return &plug{
		spec:     s,
		password: password,
		client: &http.Client{
			// The plug is a local device, which needs neither a proxy nor redirects.
			Transport: &http.Transport{MaxResponseHeaderBytes: maxBytes, DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}
}

// read queries the current power.
func (p *plug) read(ctx context.Context) (string, error) {
	n := p.spec.channel
	if p.spec.scheme == tasmota {
		// "Status 8" lists the sensors (tasmota.github.io/docs/Commands). A password is part of the query.
		data, err := p.get(ctx, "/cm", url.Values{"cmnd": {"Status 8"}})
		if err != nil {
			return "", err
		}

		text, err := fieldOf(data, "StatusSNS.ENERGY.Power", n)
		_, refused := fieldOf(data, "WARNING", 0)
		if err != nil && refused == nil {
			err = errors.New("it wants a password, or another one")
		}

		return text, err
	}

	if p.gen == 0 {
		// Every Shelly describes itself without a password. Since the second generation, the answer includes
		// gen (shelly-api-docs.shelly.cloud/gen1/#shelly, …/gen2/ComponentsAndServices/Shelly).
		data, err := p.get(ctx, "/shelly", nil)
		if err != nil {
			return "", err
		}

		text, err := fieldOf(data, "gen", 0)
		_, first := fieldOf(data, "type", 0)
		if err != nil && first != nil {
			return "", errors.New("it is no Shelly")
		}

		if p.gen = 1; err == nil {
			p.gen, _ = strconv.Atoi(text)
		}
	}

	if p.gen >= 2 { // documented in …/gen2/ComponentsAndServices/Switch#status
		data, err := p.get(ctx, "/rpc/Switch.GetStatus", url.Values{"id": {strconv.Itoa(n)}})
		if err != nil {
			return "", err
		}
		return fieldOf(data, "apower", 0)
	}

	data, err := p.get(ctx, "/meter/"+strconv.Itoa(n), nil) // see …/gen1/#shelly-plug-plugs-meter-0
	if err != nil {
		return "", err
	}

	if valid, err := fieldOf(data, "is_valid", 0); err == nil && valid == "false" {
		return "", errors.New("it reports that its measurement is not valid")
	}

	return fieldOf(data, "power", 0)
}

// get sends a query, and repeats it with the password if the plug requires one. Errors never contain the
// query.
func (p *plug) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	if p.spec.scheme == tasmota && !p.password.Empty() {
		query.Set("user", p.spec.user)
		_ = p.password.Use(func(b []byte) error { query.Set("password", string(b)); return nil })
	}

	data, status, challenge, err := p.once(ctx, path, query, "")
	if err == nil && status == http.StatusUnauthorized && !p.password.Empty() {
		data, status, _, err = p.once(ctx, path, query, p.answer(challenge, path, query))
	}

	switch {
	case err != nil:
		return nil, err
	case status == http.StatusUnauthorized:
		return nil, errors.New("it wants a password, or another one")
	case status != http.StatusOK:
		return nil, fmt.Errorf("it answers %d %s", status, http.StatusText(status))
	}

	return data, nil
}

func (p *plug) once(ctx context.Context, path string, query url.Values, authorization string) (data []byte,
	status int, challenge string, err error) {
	at := url.URL{Scheme: "http", Host: p.spec.host, Path: path, RawQuery: query.Encode()}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, 0, "", errors.New("its address cannot be queried")
	}

	if authorization != "" {
		q.Header.Set("Authorization", authorization)
	}

	answer, err := p.client.Do(q)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return nil, 0, "", wrapped.Err // the error without the URL, which may contain the password
	}

	if err != nil {
		return nil, 0, "", err
	}
	defer answer.Body.Close()
	data, err = io.ReadAll(io.LimitReader(answer.Body, maxBytes+1))
	if err == nil && len(data) > maxBytes {
		err = errors.New("it says more than 64 KiB")
	}

	return data, answer.StatusCode, answer.Header.Get("WWW-Authenticate"), err
}

// answer returns the Authorization header for a challenge. Shelly plugs of the first generation use Basic.
// Later generations use Digest with SHA-256 (RFC 7616,
// shelly-api-docs.shelly.cloud/gen2/General/Authentication).
func (p *plug) answer(challenge, path string, query url.Values) (authorization string) {
	_ = p.password.Use(func(password []byte) error {
		kind, rest, _ := strings.Cut(challenge, " ")
		if !strings.EqualFold(kind, "Digest") {
			q := http.Request{Header: http.Header{}}
			q.SetBasicAuth(p.spec.user, string(password))
			authorization = q.Header.Get("Authorization")
			return nil
		}

		asked := map[string]string{}
		for part := range strings.SplitSeq(rest, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			asked[strings.ToLower(name)] = strings.NewReplacer(`"`, "", `\`, "").Replace(value)
		}

		uri := (&url.URL{Path: path, RawQuery: query.Encode()}).RequestURI()
		var fresh [8]byte
		_, _ = rand.Read(fresh[:]) // never fails
		own := hex.EncodeToString(fresh[:])
		key := sum(p.spec.user + ":" + asked["realm"] + ":" + string(password))
		proof := sum(key + ":" + asked["nonce"] + ":00000001:" + own + ":auth:" + sum("GET:"+uri))
		authorization = fmt.Sprintf(`Digest username="%s", realm="%s", nonce="%s", uri="%s", `+
			`algorithm=SHA-256, qop=auth, nc=00000001, cnonce="%s", response="%s"`, p.spec.user,
			asked["realm"], asked["nonce"], uri, own, proof)
		return nil
	})
	return authorization
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}
