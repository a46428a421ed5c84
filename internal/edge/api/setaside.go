package api

import "encoding/json"

// maxSetAside is how many files one answer tells of.
const maxSetAside = 1000

// listSetAside shows what the node could not use and has put aside: ours. A file whose note
// cannot be read has its name and size alone.
func (s *server) listSetAside(*request) (any, error) {
	list, err := s.b.SetAside(maxSetAside)
	if err != nil {
		return nil, err
	}
	items := []map[string]any{}
	for _, f := range list {
		item := map[string]any{}
		_ = json.Unmarshal(f.Note, &item)
		if item == nil { // the note is null
			item = map[string]any{}
		}
		item["file"], item["bytes"] = f.Name, f.Bytes
		items = append(items, item)
	}
	return objects(items), nil
}
