package vm

// hinted adds the next step to an error.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint is the next step for the user.
func (h *hinted) Hint() string { return h.hint }

const ownKernel = "give a kernel and its modules: --kernel FILE --modules DIR"
