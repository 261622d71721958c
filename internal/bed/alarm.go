package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chokepoint-lab/chokepoint/internal/check"
	"github.com/chokepoint-lab/chokepoint/internal/lab/host"
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/record/store"
	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// alarms keeps the alarms of a testbed in a file. It keeps up to maxAlarms alarms until they are delivered.
// It also keeps the newest delivered alarms, so that no alarm is raised twice.
type alarms struct {
	file string
	how  plan.BedAlarm
	bed  string
	mu   sync.Mutex // held during access to the file
}

// raised is an alarm in the file.
type raised struct {
	Key    string `json:"key"`
	Sent   bool   `json:"sent"`             // delivered by all channels
	Ran    bool   `json:"ran,omitempty"`    // delivered by the command
	Posted bool   `json:"posted,omitempty"` // delivered to the webhook
	store.BedAlarm
}

const (
	maxAlarms    = 1000
	maxAlarmText = 2000 // bytes
	maxAlarmFile = 16 << 20
	alarmTime    = time.Minute // time limit of one delivery
)

func (a *alarms) read() (list []raised, err error) {
	data, err := userfile.Read(a.file, maxAlarmFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err == nil {
		err = json.Unmarshal(data, &list)
	}

	if err != nil {
		return nil, fmt.Errorf("read alarms %s: %w", a.file, err)
	}

	return list, nil
}

func (a *alarms) write(list []raised) error {
	for len(list) > maxAlarms { // remove the oldest delivered alarm or, if there is none, the oldest alarm
		i := max(0, slices.IndexFunc(list, func(r raised) bool { return r.Sent }))
		list = slices.Delete(list, i, i+1)
	}

	data, err := json.MarshalIndent(list, "", "\t")
	if err != nil {
		return err
	}

	return userfile.Put(userfile.CreateReport, a.file, data)
}

// raise adds an alarm, unless the file has an alarm with the same key.
func (a *alarms) raise(key string, of store.BedAlarm) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	list, err := a.read()
	if err != nil {
		return err
	}

	for _, r := range list {
		if r.Key == key {
			return nil
		}
	}

	of.Text = check.Plain(of.Text)
	if len(of.Text) > maxAlarmText {
		of.Text = strings.ToValidUTF8(of.Text[:maxAlarmText], "") + " …"
	}

	of.Unsent = "it was just raised"
	none := len(a.how.Command) == 0 && a.how.Webhook == ""
	if none {
		of.Unsent = ""
	}

	return a.write(append(list, raised{Key: key, Sent: none, BedAlarm: of}))
}

// newest returns up to n of the newest alarms, newest first.
func (a *alarms) newest(n int) (out []store.BedAlarm, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	list, err := a.read()
	for i := len(list) - 1; i >= 0 && len(out) < n; i-- {
		out = append(out, list[i].BedAlarm)
	}
	return out, err
}

// deliver delivers the alarms that have not been delivered, oldest first.
func (a *alarms) deliver(ctx context.Context) error {
	a.mu.Lock()
	list, err := a.read()
	a.mu.Unlock()
	for _, r := range list {
		if r.Sent {
			continue
		}

		failed := a.send(ctx, &r)
		if ctx.Err() != nil {
			failed = nil
		}

		err = errors.Join(err, failed, a.mark(r))
	}
	return err
}

// mark stores by which channels an alarm was delivered, or why it was not delivered.
func (a *alarms) mark(sent raised) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	list, err := a.read()
	if err != nil {
		return err
	}

	for i := range list {
		if list[i].Key == sent.Key {
			list[i] = sent
		}
	}

	return a.write(list)
}

// sentAlarm is the form in which an alarm is delivered.
type sentAlarm struct {
	Format string `json:"format"`
	Bed    string `json:"testbed"`
	store.BedAlarm
	Unsent string `json:"unsent,omitempty"` // hides BedAlarm.Unsent
}

// send delivers an alarm by the channels that have not delivered it yet, and sets the fields of r
// accordingly.
func (a *alarms) send(ctx context.Context, r *raised) error {
	body, err := json.Marshal(sentAlarm{Format: "chokepoint-alarm/1", Bed: a.bed, BedAlarm: r.BedAlarm})
	if err != nil {
		return err
	}

	each := func(done *bool, wanted bool, f func(context.Context) error) {
		if *done || !wanted {
			return
		}

		ctx, stop := context.WithTimeout(ctx, alarmTime)
		defer stop()
		failed := f(ctx)
		*done = failed == nil
		err = errors.Join(err, failed)
	}
	each(&r.Ran, len(a.how.Command) > 0, func(ctx context.Context) error { return a.command(ctx, body) })
	each(&r.Posted, a.how.Webhook != "", func(ctx context.Context) error {
		return post(ctx, a.how.Webhook, body)
	})
	r.Sent, r.Unsent = err == nil, ""
	if err != nil {
		r.Unsent = check.Plain(err.Error())
		return fmt.Errorf("deliver alarm: %w", err)
	}

	return nil
}

func (a *alarms) command(ctx context.Context, body []byte) error {
	if err := host.TrustedCommand(a.how.Command); err != nil {
		return err
	}

	_, err := host.Run(ctx, host.Local(), host.Command{
		Path:  a.how.Command[0],
		Args:  a.how.Command[1:],
		Stdin: bytes.NewReader(body),
	})
	return err
}

// post posts JSON to a webhook. Its URL often contains a secret, so errors name only its host.
func post(ctx context.Context, to string, body []byte) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL of the webhook is wrong")
	}

	q.Header.Set("Content-Type", "application/json")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	defer client.CloseIdleConnections()
	answer, err := send(client, q)
	if err != nil {
		return fmt.Errorf("webhook at %s: %w", q.URL.Host, err)
	}

	if answer.StatusCode/100 != 2 {
		err = fmt.Errorf("webhook at %s answers %s", q.URL.Host, answer.Status)
	}

	return errors.Join(err, answer.Body.Close())
}

// send sends a request. The error does not contain the URL, which may contain a secret.
func send(client *http.Client, q *http.Request) (*http.Response, error) {
	answer, err := client.Do(q)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return answer, err
}
