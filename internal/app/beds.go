package app

import (
	"context"
	"errors"

	"github.com/chokepoint-lab/chokepoint/internal/record/store"
)

// Beds lists the testbeds that have reported to the store, by name.
func (d Dirs) Beds(ctx context.Context) ([]store.Bed, error) {
	st, err := d.readStore(ctx)
	if errors.Is(err, store.ErrNone) {
		return nil, nil
	}

	if err != nil {
		return nil, err
	}

	beds, err := st.Beds(ctx)
	return beds, errors.Join(err, st.Close())
}

// BedRequests lists the requests to a testbed, newest first.
func (d Dirs) BedRequests(ctx context.Context, bed string) ([]store.BedRequest, error) {
	st, err := d.OpenStore(ctx)
	if err != nil {
		return nil, err
	}

	requests, err := st.BedRequests(ctx, bed)
	return requests, errors.Join(err, st.Close())
}

// AskBed stores a request to a testbed and returns it with its id. If the testbed cannot fulfil it, the
// error is an ErrUsage.
func (d Dirs) AskBed(ctx context.Context, r store.BedRequest) (store.BedRequest, error) {
	st, err := d.openToChange(ctx)
	if err != nil {
		return r, err
	}

	r, err = st.AskBed(ctx, r)
	return r, errors.Join(ofRequest(err), st.Close())
}

// ForgetBed removes a testbed from the store. If the testbed is not known, the error is an ErrUsage.
func (d Dirs) ForgetBed(ctx context.Context, name string) error {
	st, err := d.openToChange(ctx)
	if err != nil {
		return err
	}

	return errors.Join(ofRequest(st.RemoveBed(ctx, name)), st.Close())
}
