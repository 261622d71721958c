package bed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/chokepoint-lab/chokepoint/internal/userfile"
)

// attempts counts, in a file, how often the process or the machine died in the current step, so that a step
// that kills the process or the machine is not executed forever.
type attempts struct {
	file string
	mu   sync.Mutex
	open bool // the file contains the current step
}

// attempt is the content of the file.
type attempt struct {
	Job   string `json:"job"`
	Step  string `json:"step"`
	Times int    `json:"times"` // how often the step has begun since the last end of a trial
}

const (
	maxAttempts    = 5
	maxAttemptFile = 4 << 10 // bytes
)

// begin counts an attempt of a step. It returns an error if there were too many attempts.
func (a *attempts) begin(job, step string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var last attempt
	data, err := userfile.Read(a.file, maxAttemptFile)
	if err == nil {
		err = json.Unmarshal(data, &last)
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		last = attempt{} // restart the count, because the machine died while the file was being written
	}

	if last.Job != job || last.Step != step {
		last = attempt{Job: job, Step: step}
	}

	last.Times++
	if last.Times > maxAttempts {
		return fmt.Errorf("%s: the program or the machine died in this step %d times, without a new trial",
			step, maxAttempts)
	}

	data, err = json.Marshal(last)
	if err == nil {
		err = userfile.Put(userfile.CreateReport, a.file, data)
	}

	a.open = err == nil
	return err
}

// end removes the count, because the step or one of its trials has ended.
func (a *attempts) end() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open {
		return nil
	}

	a.open = false
	if err := os.Remove(a.file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
