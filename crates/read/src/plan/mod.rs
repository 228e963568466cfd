//! Which sample or crop comes when, on which rank.
