package shovel

import "time"

// SetPatience is how long peers may take to answer the shovels that are set from now on.
func (s *Shovels) SetPatience(d time.Duration) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.patience = d
}
