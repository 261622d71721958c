package meter

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
)

// ports are those that IANA has registered for MQTT.
var ports = map[string]string{mqtt: "1883", mqtts: "8883"}

// listen takes what is told on the topic until the connection is lost or ctx ends.
func (m *Meter) listen(ctx context.Context) error {
	lost := make(chan error, 1)
	o := paho.NewClientOptions().AddBroker(m.spec.broker()).SetClientID("chokepoint-" + rand.Text()[:12]).
		SetProtocolVersion(4).SetCleanSession(true).SetAutoReconnect(false).SetConnectTimeout(patience).
		SetDialer(&net.Dialer{Timeout: patience}).SetKeepAlive(10 * time.Second).SetPingTimeout(patience).
		SetUsername(m.spec.user).SetConnectionLostHandler(func(_ paho.Client, err error) { lost <- err })
	if !m.password.Empty() {
		_ = m.password.Use(func(b []byte) error { o.SetPassword(string(b)); return nil })
	}
	c := paho.NewClient(o)
	t := c.Connect()
	if <-t.Done(); t.Error() != nil { // within patience
		return t.Error()
	}
	defer c.Disconnect(100)
	t = c.Subscribe(m.spec.topic, 0, func(_ paho.Client, told paho.Message) {
		if !told.Retained() { // else it is of some time before
			m.message(host.Monotonic(), told.Payload())
		}
	})
	if !t.WaitTimeout(patience) {
		return fmt.Errorf("the broker confirms no topic within %s", patience)
	}
	if t.Error() != nil {
		return t.Error()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-lost:
		return err
	}
}

// message takes what was told.
func (m *Meter) message(at int64, payload []byte) {
	text, err := string(payload[:min(len(payload), mostBytes)]), error(nil)
	if m.spec.field != "" {
		text, err = fieldOf(payload, m.spec.field, 0)
	}
	m.take(at, text, err)
}

// broker is its address for the library, with a port.
func (s spec) broker() string {
	if _, _, err := net.SplitHostPort(s.host); err == nil {
		return s.scheme + "://" + s.host
	}
	return s.scheme + "://" + s.host + ":" + ports[s.scheme]
}
