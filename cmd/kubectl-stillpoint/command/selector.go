// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
)

func parseSelector(text string) (labels.Selector, error) {
	s, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("reading --selector %q: %w", text, err)
	}
	return s, nil
}
