package main

import (
	"github.com/chokepoint-lab/chokepoint/internal/plan"
	"github.com/chokepoint-lab/chokepoint/internal/registry"
)

// vocabulary is what plans may speak of.
func vocabulary() plan.Vocabulary { return registry.Vocabulary() }
