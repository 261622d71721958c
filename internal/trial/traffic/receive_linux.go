package traffic

import "golang.org/x/sys/unix"

// Receiver receives batches of datagrams from several sockets on one thread. It does not block.
type Receiver struct {
	*Batch
	fds    []int
	poll   int // epoll instance; -1 if there is only one socket
	events []unix.EpollEvent
}

// NewReceiver returns a Receiver that fills the batch b from the given sockets.
func NewReceiver(fds []int, b *Batch) (*Receiver, error) {
	r := &Receiver{Batch: b, fds: fds, poll: -1}
	if len(fds) == 1 {
		return r, nil
	}

	var err error
	r.poll, err = Watch(fds, unix.EPOLLIN)
	r.events = make([]unix.EpollEvent, min(len(fds), 1024))
	return r, err
}

func (r *Receiver) Close() {
	if r.poll >= 0 {
		unix.Close(r.poll)
	}
}

// Look receives a batch from each ready socket, and calls enter with the number of datagrams in the batch.
// It returns the total number, and whether more datagrams may be waiting.
func (r *Receiver) Look(enter func(n int)) (took int, more bool, err error) {
	if r.poll < 0 {
		took, err = r.drain(r.fds[0], enter)
		return took, took == ReceiveBatch, err
	}

	n, err := EpollWait(r.poll, r.events, 0)
	if err != nil && err != unix.EINTR {
		return 0, false, err
	}

	for _, e := range r.events[:max(n, 0)] {
		k, err := r.drain(r.fds[e.Fd], enter)
		if err != nil {
			return took, false, err
		}

		took += k
	}

	return took, n == len(r.events), nil
}

func (r *Receiver) drain(fd int, enter func(n int)) (int, error) {
	n, err := r.Receive(fd)
	if n > 0 {
		enter(n)
	}

	if err == nil || Again(err) || err == unix.ECONNREFUSED {
		return n, nil
	}

	return n, err
}
