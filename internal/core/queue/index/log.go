package index

// Log is what the log tells that a recovery goes on with after the copies of a checkpoint. What copies have to say follows
// from it, and what a call may depend on: its strategy below.
type Log uint8

const (
	// Outcomes say what has become of entries. What the log does not tell has not happened. So it is with a local queue.
	Outcomes Log = iota
	// Commands say what was asked for. All is decided again, by this node and by other replicas, and must become the same.
	Commands
)

// A strategy is the answers to what the index and the rules ask about a Log.
type strategy struct{ savesDying, savesOwners, readsAllDue, countsSaves bool }

var strategies = [...]strategy{
	Outcomes: {
		// A death is logged when it is routed. One that is not must happen again: the copy has the entry as it was (kept).
		savesDying: false,
		// Consumers end with the process. What is out comes back to the queue when it recovers, whoever had it.
		savesOwners: false,
		// What is due and in copies only may die a little later: pages are read some at a time, and what dies is logged.
		readsAllDue: false,
		// Pages that must be saved before their entries die make a call long: it handles fewer entries.
		countsSaves: true,
	},
	Commands: {
		// No command tells of the death again: the copy has it, with its reason and moment.
		savesDying: true,
		// Consumers are part of what is replicated, and settle their deliveries by later commands.
		savesOwners: true,
		// What dies by one command must not depend on what is in memory: another replica, or this one after a restart, has
		// other pages there.
		readsAllDue: true,
		// Nor may it depend on whether a checkpoint is being written.
		countsSaves: false,
	},
}

// SavesDying says whether copies have entries in Dying as such.
func (l Log) SavesDying() bool { return strategies[l].savesDying }

// SavesOwners says whether copies tell which consumers have the entries in Out.
func (l Log) SavesOwners() bool { return strategies[l].savesOwners }

// ReadsAllDue says whether IsDue brings all into memory that is due. Else ReadSome brings some.
func (l Log) ReadsAllDue() bool { return strategies[l].readsAllDue }

// CountsSaves says whether the saving of pages (Pages.Saves) counts to what one call may do.
func (l Log) CountsSaves() bool { return strategies[l].countsSaves }
