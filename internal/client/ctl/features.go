package ctl

import "strings"

// featuresOf is the column "Features" of the management page, a column of ours: the codes, as
// in "D TTL DLX DLK", and the names of the policies.
func featuresOf(o object) any {
	list, _ := o["features"].([]any)
	codes := make([]string, 0, len(list))
	for _, f := range list {
		feature, _ := f.(map[string]any)
		if code, ok := feature["code"].(string); ok {
			codes = append(codes, code)
		}
	}
	return strings.Join(codes, " ")
}
