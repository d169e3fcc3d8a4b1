//! One simulated file: what the page cache holds, what the device holds, and which sectors differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::seed::Seed;

/// Page size of the simulated cache.
const PAGE_BYTES: u64 = 4096;

/// The device writes this much atomically.
const SECTOR_BYTES: u64 = 512;

const SECTORS_PER_PAGE: u64 = PAGE_BYTES / SECTOR_BYTES;

type Page = Arc<[u8; PAGE_BYTES as usize]>;

/// Pages by number; an absent page is all zeroes.
type Pages = BTreeMap<u64, Page>;

#[derive(Debug, Default)]
pub(super) struct Content {
    cached: Pages,
    cached_len: u64,
    stored: Pages,
    stored_len: u64,
    /// Sectors written since they were last made durable, a bit each.
    dirty: BTreeMap<u64, u8>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.cached_len
    }

    /// Bytes of space that the file takes.
    pub(super) fn space(&self) -> u64 {
        space_of(self.cached_len)
    }

    pub(super) fn read(&self, buffer: &mut [u8], position: u64) -> usize {
        let end = self.cached_len.min(position.saturating_add(buffer.len() as u64));
        let mut at = position;
        while at < end {
            let (page, within) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let n = (PAGE_BYTES as usize - within).min((end - at) as usize);
            let into = &mut buffer[(at - position) as usize..][..n];
            match self.cached.get(&page) {
                Some(bytes) => into.copy_from_slice(&bytes[within..within + n]),
                None => into.fill(0),
            }
            at += n as u64;
        }
        end.saturating_sub(position) as usize
    }

    /// Writes into the cache. A sector that is already dirty may reach the device first, as a
    /// kernel writes back when it likes.
    pub(super) fn write(&mut self, bytes: &[u8], position: u64, seed: &mut Seed) {
        let end = position + bytes.len() as u64;
        let mut at = position;
        while at < end {
            let (page, within) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
            let n = (PAGE_BYTES as usize - within).min((end - at) as usize);
            let sectors = sector_mask(within as u64, n as u64);
            let rewritten = self.dirty.get(&page).copied().unwrap_or(0) & sectors;
            if rewritten != 0 && seed.chance(1, 4) {
                self.write_back(page, rewritten & seed.next() as u8);
            }
            let into = self.cached.entry(page).or_insert_with(zero_page);
            let from = &bytes[(at - position) as usize..][..n];
            Arc::make_mut(into)[within..within + n].copy_from_slice(from);
            *self.dirty.entry(page).or_default() |= sectors;
            at += n as u64;
        }
        self.cached_len = self.cached_len.max(end);
    }

    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.cached_len {
            let first_gone = len.div_ceil(PAGE_BYTES);
            drop(self.cached.split_off(&first_gone));
            self.dirty.retain(|&page, _| page < first_gone);
            for (&page, _) in self.stored.range(first_gone..) {
                self.dirty.insert(page, u8::MAX);
            }
            let within = (len % PAGE_BYTES) as usize;
            if within != 0
                && let Some(page) = self.cached.get_mut(&(len / PAGE_BYTES))
            {
                Arc::make_mut(page)[within..].fill(0);
                let sectors = sector_mask(within as u64, PAGE_BYTES - within as u64);
                *self.dirty.entry(len / PAGE_BYTES).or_default() |= sectors;
            }
        }
        self.cached_len = len;
    }

    pub(super) fn sync(&mut self) {
        for (page, _) in std::mem::take(&mut self.dirty) {
            self.write_back(page, u8::MAX);
        }
        self.stored_len = self.cached_len;
        drop(self.stored.split_off(&self.stored_len.div_ceil(PAGE_BYTES)));
    }

    /// What a kernel does when the device fails during a sync: some sectors may have been written,
    /// and all are called clean from then on.
    pub(super) fn fail_sync(&mut self, seed: &mut Seed) {
        for (page, sectors) in std::mem::take(&mut self.dirty) {
            self.write_back(page, sectors & seed.next() as u8);
        }
        self.stored_len = seed.between(self.stored_len, self.cached_len);
    }

    /// The power goes: what was not synced survives in part, sector by sector in no order.
    pub(super) fn lose_power(&mut self, seed: &mut Seed) {
        // All, nothing, or anything between; tearing within a page or only between pages.
        let (all, nothing, whole_pages) = (seed.chance(1, 6), seed.chance(1, 4), seed.chance(1, 2));
        for (page, sectors) in std::mem::take(&mut self.dirty) {
            let kept = match (all, nothing, whole_pages) {
                (true, _, _) => u8::MAX,
                (_, true, _) => 0,
                (_, _, true) => [0, u8::MAX][seed.below(2) as usize],
                _ => seed.next() as u8,
            };
            self.write_back(page, sectors & kept);
        }
        if all {
            self.stored_len = self.cached_len;
        } else if !nothing {
            self.stored_len = seed.between(self.stored_len, self.cached_len);
        }
        self.drop_cache();
    }

    /// Forgets the cache, so that what is read next is what the device holds.
    pub(super) fn drop_cache(&mut self) {
        let len = self.stored_len;
        drop(self.stored.split_off(&len.div_ceil(PAGE_BYTES)));
        let within = (len % PAGE_BYTES) as usize;
        if within != 0
            && let Some(page) = self.stored.get_mut(&(len / PAGE_BYTES))
        {
            Arc::make_mut(page)[within..].fill(0);
        }
        self.cached = self.stored.clone();
        self.cached_len = len;
        self.dirty.clear();
    }

    /// Turns one bit over, on the device and in the cache. False if the file is shorter.
    pub(super) fn flip_bit(&mut self, byte: u64, bit: u8) -> bool {
        if byte >= self.cached_len {
            return false;
        }
        for pages in [&mut self.cached, &mut self.stored] {
            let page = pages.entry(byte / PAGE_BYTES).or_insert_with(zero_page);
            Arc::make_mut(page)[(byte % PAGE_BYTES) as usize] ^= 1 << (bit % 8);
        }
        true
    }

    fn write_back(&mut self, page: u64, sectors: u8) {
        if sectors == 0 {
            return;
        }
        match self.cached.get(&page) {
            Some(bytes) if sectors == u8::MAX => {
                self.stored.insert(page, Arc::clone(bytes));
            }
            cached => {
                let stored = Arc::make_mut(self.stored.entry(page).or_insert_with(zero_page));
                for sector in (0..SECTORS_PER_PAGE).filter(|sector| sectors & (1 << sector) != 0) {
                    let range = (sector * SECTOR_BYTES) as usize..((sector + 1) * SECTOR_BYTES) as usize;
                    match cached {
                        Some(bytes) => stored[range.clone()].copy_from_slice(&bytes[range]),
                        None => stored[range].fill(0),
                    }
                }
            }
        }
    }
}

/// Space that a file of this length takes.
pub(super) fn space_of(len: u64) -> u64 {
    len.next_multiple_of(PAGE_BYTES)
}

fn zero_page() -> Page {
    Arc::new([0; PAGE_BYTES as usize])
}

/// The sectors of a page that `n` bytes from `within` touch.
fn sector_mask(within: u64, n: u64) -> u8 {
    let (first, last) = (within / SECTOR_BYTES, (within + n - 1) / SECTOR_BYTES);
    (first..=last).fold(0, |mask, sector| mask | 1 << sector)
}
