// SPDX-License-Identifier: Apache-2.0

package command

import "encoding/json"

func marshalIndent(v any) ([]byte, error) {
	text, err := json.MarshalIndent(v, "", "    ")
	return append(text, '\n'), err
}
