package server

import (
	"bartleby.mq/internal/config"
)

// Reload applies another configuration as far as a running node can, reads the certificates
// again, and logs the settings that need a restart. Settings of connections apply to new
// connections.
func (s *Server) Reload(next config.Config) error {
	old := s.config.Load()
	now, waiting, err := config.TakeOver(old, &next)
	if err != nil {
		return err
	}
	for _, c := range config.Changed(old, &now) {
		s.Logger.Info("configuration changed", "setting", c.String())
	}
	for _, w := range waiting {
		s.Logger.Warn("configuration needs a restart", "setting", w.String())
	}
	if now.Memory != old.Memory {
		s.memory.Store(nil) // the latest setting counts
	}
	if now.Disk != old.Disk {
		s.disk.Store(nil)
	}
	s.config.Store(&now)
	s.reloadCertificates(&now)
	s.warnOfFiles(&now)
	s.listen.SetLimits(s.listenLimits(&now))
	s.broker.SetAccountRules(accountRules(&now))
	s.look()
	return nil
}
